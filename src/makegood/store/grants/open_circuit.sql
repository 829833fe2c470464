(text ~ '^its service does not answer: its circuit is open, requests wait \(see `makegood agents`\)(; only these steps fail:(,? [^ ,`]{1,200} of task [0-9a-z]{13}){2,3})?$' or text ~
    '^only step [^`]* of task ([0-9a-z]{13}) fails, and opened its circuit: [^`]*\. See `makegood task show \1`; if the step is broken and not the service, `makegood task cancel \1` ends it$')
