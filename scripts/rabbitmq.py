"""Install the RabbitMQ of Debian unstable in a folder of ``.platforms``, and print that folder: the tests run their nodes in there.

As root, like ``scripts.platforms``, whose Debians these are.
"""

import os
import sys

from scripts.platforms import PlatformError, Root, say

SUITE = "sid"


def main() -> int:
    """Make or update the folder. Returns 2 if this user cannot."""
    if os.geteuid() != 0:
        say("another Debian is made with chroot and namespaces: run it as root")
        return 2
    root = Root(SUITE)
    root.path.parent.mkdir(exist_ok=True)
    try:
        root.make(["ca-certificates"])
        root.install(["rabbitmq-server"])
        # A node looks itself up by name, which a new Debian does not know.
        (root.path / "etc/hosts").write_text("127.0.0.1 localhost\n", encoding="utf-8")
    except PlatformError as error:
        say(f"RabbitMQ of Debian {SUITE}: {error}")
        return 1
    print(root.path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
