/* The console's own script. Every page works without it: it keeps a page fresh, counts down, and listens for keys. */
"use strict";
(() => {
  const body = document.body, root = document.documentElement, base = body.dataset.base || "";
  const $ = (id) => document.getElementById(id);
  const each = (selector, act, from = document) => from.querySelectorAll(selector).forEach(act);
  const remember = (name, value) => {
    document.cookie = `${name}=${value}; path=${base || "/"}; max-age=31536000; samesite=lax${location.protocol === "https:" ? "; secure" : ""}`;
  };
  const remembered = (name) => (`; ${document.cookie}`.split(`; ${name}=`)[1] || "").split(";")[0];
  const writing = (element) => element && (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) && element.type !== "checkbox" || element.isContentEditable);

  /* ---- times: countdowns and ages from what the server wrote, zone ---- */
  const shown = (seconds) => {
    if (seconds < 59.5) return `${Math.round(seconds)} s`;
    const minutes = Math.round(seconds / 60), hours = Math.floor(minutes / 60), rest = minutes % 60;
    if (minutes < 60) return `${minutes} min`;
    if (hours < 48) return rest && hours < 10 ? `${hours} h ${rest} min` : `${hours} h`;
    return `${Math.floor(hours / 24)} d`;
  };
  const born = new WeakMap();
  const age = (element, name) => {
    const value = element.getAttribute(name), known = born.get(element);
    if (!known || known.value !== value) born.set(element, { value, at: performance.now(), whole: element.getAttribute("stroke-dasharray") });
    return (performance.now() - born.get(element).at) / 1000;
  };
  const tick = () => {
    each("[data-since]", (e) => {
      const seconds = Number(e.dataset.since) + age(e, "data-since"), text = `${shown(seconds)} ago`;
      if (seconds >= 1 && e.textContent !== text) e.textContent = text;
    });
    each("[data-until]", (e) => {
      const left = Number(e.dataset.until) - age(e, "data-until");
      const text = left <= 0 ? "now" : `in ${shown(Math.ceil(left))}`;
      if (e.textContent !== text) e.textContent = text;
    });
    each("rect[data-left]", (e) => {
      const left = Math.max(0, Number(e.dataset.left) - age(e, "data-left"));
      e.setAttribute("width", `${(100 * left / Number(e.dataset.of)).toFixed(2)}%`);
    });
    each("[data-ring]", (e) => {
      const whole = Number(e.dataset.ring), left = Math.max(0, whole - age(e, "data-ring"));
      const arc = e.querySelector(".ring__left"), said = e.querySelector("b");
      if (!arc || !said || !whole) return;
      if (!arc.dataset.begin) arc.dataset.begin = arc.getAttribute("stroke-dasharray").split(" ")[0];
      arc.setAttribute("stroke-dasharray", `${(Number(arc.dataset.begin) * left / whole).toFixed(1)} 100`);
      said.textContent = left <= 0 ? "now" : shown(Math.ceil(left));
    });
  };
  const zone = () => {
    const local = remembered("makegood_zone") === "local";
    each("time[datetime]", (e) => {
      if (e.hasAttribute("data-since")) return;
      const at = new Date(e.getAttribute("datetime"));
      if (Number.isNaN(at.getTime())) return;
      if (!e.dataset.utc) e.dataset.utc = e.textContent;
      if (!local) { e.textContent = e.dataset.utc; return; }
      const two = (n) => String(n).padStart(2, "0"), day = /\d{4}-\d\d-\d\d/.test(e.dataset.utc);
      const millis = /\.\d{3}/.test(e.dataset.utc) ? `.${String(at.getMilliseconds()).padStart(3, "0")}` : "";
      const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}${millis}`;
      e.textContent = day ? `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock}` : clock;
    });
    const button = $("zone");
    if (button) { button.textContent = local ? "local" : "UTC"; button.title = local ? "Times are in this browser's zone" : "Times are in UTC"; }
  };

  /* ---- swapping fragments ---- */
  const held = new Set();
  const busy = (element) => element.contains(document.activeElement) && writing(document.activeElement)
    || element.querySelector(":popover-open") !== null;
  const swap = async (fresh, names) => {
    for (const name of names) {
      const old = $(name), now = fresh.getElementById(name);
      if (!old || !now) continue;
      if (busy(old)) { held.add(name); old.setAttribute("data-newer", ""); continue; }
      held.delete(name);
      holdBack(now);
      await window.htmx.swap({ text: now.outerHTML, target: old, sourceElement: old, swap: "outerMorph" });
      if ($(name)) $(name).removeAttribute("data-newer");
    }
    zone(); tick(); marked(); remark(); count();
  };
  /* Rows that are new at the top of a list wait behind a button while the pointer or the mark is in it. */
  const newer = $("newer"), waiting = new Map();
  let released = false;
  const inHand = (list) => newer && !released && (list.matches(":hover") || newer.matches(":hover") || list.querySelector(".is-at"));
  const holdBack = (now) => {
    for (const fold of now.querySelectorAll("details.batch")) fold.open = Boolean($(fold.id)?.open);
    for (const list of [now, ...now.querySelectorAll("[data-list]")]) {
      const old = list.matches("[data-list]") && $(list.id);
      if (!old) continue;
      const known = new Set([...old.children].map((row) => row.id)), fresh = [...list.children].filter((row) => row.id);
      const first = inHand(old) ? fresh.findIndex((row) => known.has(row.id)) : 0;
      fresh.slice(0, Math.max(0, first)).forEach((row) => row.remove());
      if (first > 0) waiting.set(list.id, first); else waiting.delete(list.id);
    }
  };
  const count = () => {
    const all = [...waiting.values()].reduce((sum, one) => sum + one, 0);
    if (newer) { newer.hidden = !all; newer.textContent = `${all} newer`; }
  };
  const parts = (page) => [...page.querySelectorAll("#main > [id], #nav")].map((e) => e.id);
  const refresh = async (names) => {
    const wanted = names && names.length ? `${location.search ? `${location.search}&` : "?"}fragment=${encodeURIComponent(names.join(","))}` : location.search;
    const answer = await fetch(location.pathname + wanted, { headers: { accept: "text/html" }, cache: "no-store" });
    if (answer.redirected || answer.status === 401) { location.reload(); return; }
    if (!answer.ok) return names && names.length ? refresh() : undefined;
    const text = await answer.text();
    const fresh = new DOMParser().parseFromString(names && names.length ? rows(text) : text, "text/html");
    if (names && names.some((name) => !fresh.getElementById(name))) return refresh();
    await swap(fresh, names && names.length ? names : busy($("main")) ? parts(fresh) : ["main", "nav"]);
    return undefined;
  };
  const rows = (text) => /^\s*<(tr|tbody|td)/.test(text) ? `<table>${text}</table>` : text;
  document.addEventListener("pointerover", () => {
    if (waiting.size && ![...waiting.keys()].some((id) => $(id) && inHand($(id)))) refresh([...waiting.keys()]).catch(() => {});
  });
  newer?.addEventListener("click", () => {
    released = true;
    refresh([...waiting.keys()]).catch(() => {}).finally(() => { released = false; });
  });
  document.addEventListener("focusout", () => { if (held.size) setTimeout(() => refresh([...held]).catch(() => {}), 50); });
  document.addEventListener("toggle", (event) => { if (event.newState === "closed" && held.size) refresh([...held]).catch(() => {}); }, true);

  /* An opened dialog has the focus in its first field. The attribute is set only now: in a swapped fragment browsers complain of it. */
  document.addEventListener("beforetoggle", (event) => {
    const dialog = event.target, first = dialog.matches("[data-focus]") ? dialog : dialog.querySelector("[data-focus]");
    if (first) first.toggleAttribute("autofocus", event.newState === "open");
  }, true);

  /* ---- live ---- */
  const button = $("live"), page = body.dataset.page;
  let stream = null, paused = remembered("makegood_paused") === "1", large = false, lostAt = 0, polling = 0, wanted = new Set(), going = false;
  const face = () => {
    if (!button) return;
    const lost = !paused && lostAt && Date.now() - lostAt > 3000;
    button.hidden = false;
    button.classList.toggle("live--paused", paused);
    button.classList.toggle("live--lost", Boolean(lost));
    button.setAttribute("aria-pressed", String(!paused));
    const at = new Date().toISOString().slice(11, 19);
    if (paused && !button.dataset.at) button.dataset.at = at;
    if (!paused) delete button.dataset.at;
    button.querySelector(".live__word").textContent = large ? "too large to be live: reload" : paused ? `paused at ${button.dataset.at}` : lost ? `no answer since ${shown((Date.now() - lostAt) / 1000)}` : "live";
  };
  const pull = async () => {
    if (going || !wanted.size) return;
    going = true;
    const names = [...wanted];
    wanted.clear();
    try { await refresh(names); } catch { lostAt ||= Date.now(); }
    setTimeout(() => { going = false; pull(); }, 250);
  };
  const close = () => { if (stream) stream.close(); stream = null; };
  const open = () => {
    close();
    if (!page || paused || large || document.hidden) { face(); return; }
    stream = new EventSource(`${base}/events?page=${encodeURIComponent(page)}`);
    stream.onopen = () => { lostAt = 0; face(); refresh().catch(() => {}); };
    stream.onerror = () => { lostAt ||= Date.now(); face(); };
    stream.addEventListener("large", () => { close(); large = true; lostAt = 0; face(); });
    stream.addEventListener("away", () => { lostAt ||= Date.now(); face(); });
    stream.addEventListener("changed", (event) => {
      lostAt = 0;
      event.data.split(",").forEach((name) => wanted.add(name));
      face(); pull();
    });
  };
  const pause = () => { paused = !paused; remember("makegood_paused", paused ? "1" : "0"); open(); };
  if (page) {
    button?.addEventListener("click", pause);
    document.addEventListener("visibilitychange", open);
    window.addEventListener("pagehide", close);
    setInterval(() => {
      face();
      if (!paused && !document.hidden && lostAt && ++polling % 5 === 0) {
        refresh().then(() => { if (!stream || stream.readyState === 2) open(); }).catch(() => {});
      }
    }, 1000);
    open();
  }

  /* ---- acts: forms are sent without leaving the page ---- */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!page || form.method !== "post" || form.hasAttribute("data-plain") || !$("toasts") || /\/(login|logout|bulk)$/.test(new URL(form.action).pathname)) return;
    event.preventDefault();
    const fields = new URLSearchParams(new FormData(form, event.submitter));
    each("button[type=submit], .btn--main, .btn--undo", (b) => { b.disabled = true; }, form);
    fetch(form.action, { method: "POST", body: fields, headers: { "hx-request": "true" } }).then(async (answer) => {
      if (answer.redirected) { location.href = answer.url; return; }
      const text = await answer.text();
      if (text.trim().startsWith("<div class=\"toast")) {
        await window.htmx.swap({ text, target: $("toasts"), sourceElement: $("toasts"), swap: "beforeend" });
      } else { location.reload(); return; }
      each("[aria-invalid]", (field) => field.removeAttribute("aria-invalid"), form);
      const wrong = form.elements[answer.headers.get("makegood-field")];
      if (wrong) { wrong.setAttribute("aria-invalid", "true"); wrong.focus(); }
      if (answer.ok) {
        form.closest("[popover]")?.hidePopover?.();
        form.reset();
        await refresh();
      }
    }).catch(() => { form.submit(); }).finally(() => each("button[disabled]", (b) => { b.disabled = false; }, form));
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) event.target.closest(".toast")?.remove();
    const copy = event.target.closest(".cmd .btn, [data-copy]");
    if (copy) navigator.clipboard?.writeText(copy.dataset.copy || copy.closest(".cmd")?.querySelector("code")?.title || "").catch(() => {});
  });

  /* ---- selecting ---- */
  const marked = () => {
    each("form[data-select]", (form) => {
      const boxes = [...form.querySelectorAll("tbody input[type=checkbox]")], ticked = boxes.filter((box) => box.checked).length;
      each("[data-ticked]", (e) => { e.textContent = ticked ? `On the ${ticked} ticked` : "Tick tasks to act on them"; }, form);
      each("button[name=kind]", (b) => { b.disabled = !ticked; }, form);
      each("[data-all]", (all) => { all.hidden = false; all.checked = ticked === boxes.length; all.indeterminate = !all.checked && ticked > 0; }, form);
    });
  };
  document.addEventListener("change", (event) => {
    if (event.target.matches("thead input[type=checkbox]")) {
      each("tbody input[type=checkbox]", (box) => { box.checked = event.target.checked; }, event.target.closest("table"));
    }
    marked();
  });
  window.addEventListener("pageshow", marked);  // a browser that goes back ticks boxes again

  /* ---- theme ---- */
  const theme = () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    remember("makegood_theme", root.dataset.theme);
  };
  const turnZone = () => { remember("makegood_zone", remembered("makegood_zone") === "local" ? "utc" : "local"); zone(); };
  for (const [id, act] of [["theme", theme], ["zone", turnZone]]) {
    const one = $(id);
    if (one) { one.hidden = false; one.addEventListener("click", act); }
  }

  /* ---- keys ---- */
  const places = { o: "/", t: "/tasks", i: "/alerts", e: "/errors", a: "/agents", c: "/cluster", d: "/schedules", l: "/lanes", b: "/bulk", u: "/audit", s: "/stores" };
  let gone = 0, at = -1, name = "";
  const lines = () => [...document.querySelectorAll("[data-row], tbody tr")].filter((e) => e.checkVisibility?.() ?? true);
  const move = (by) => {
    const all = lines();
    if (!all.length) return;
    at = Math.min(all.length - 1, Math.max(0, (all.includes(document.activeElement?.closest("[data-row], tbody tr")) ? all.indexOf(document.activeElement.closest("[data-row], tbody tr")) : at) + by));
    each(".is-at", (e) => e.classList.remove("is-at"));
    name = all[at].id;
    mark(all[at]);
    all[at].scrollIntoView({ block: "nearest" });
  };
  const mark = (line) => {
    line.classList.add("is-at");
    if (!line.hasAttribute("tabindex")) line.tabIndex = -1;
    line.focus({ preventScroll: true });
  };
  const here = () => name && lines().find((line) => line.id === name) || lines()[at];
  /* A swapped list has other rows, and none is marked: the mark stays on the same one. */
  const remark = () => {
    const line = here();
    if (!line || line.classList.contains("is-at")) return;
    each(".is-at", (e) => e.classList.remove("is-at"));
    if (document.activeElement === body) mark(line); else line.classList.add("is-at");
  };
  const act = (key) => {
    const line = here(), found = line?.querySelector(`[data-key="${key}"]`) || (line ? null : document.querySelector(`#acts [data-key="${key}"]`));
    if (found) { found.focus({ preventScroll: true }); found.click(); }  // closed, its dialog gives the focus back
    return Boolean(found);
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (event.key === "Escape") { if (writing(document.activeElement) && !document.activeElement.closest("[popover]")) document.activeElement.blur(); return; }
    if (!$("nav") || writing(event.target) || document.querySelector("[popover]:popover-open") && event.key !== "?") return;
    const key = event.key;
    if (gone && Date.now() - gone < 1500 && places[key]) { gone = 0; event.preventDefault(); location.href = base + places[key]; return; }
    gone = 0;
    if (key === "g") gone = Date.now();
    else if (key === "/") { event.preventDefault(); (document.querySelector("#main input[name=q]") || document.querySelector(".find input"))?.focus(); }
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "Enter" && here() && !event.target.closest("a, button, summary")) here().querySelector("a[href]")?.click();
    else if (key === "x" && here()) { const box = here().querySelector("input[type=checkbox]"); if (box) { box.checked = !box.checked; marked(); } }
    else if (key === "X") { const all = document.querySelector("[data-all]"); if (all) all.click(); }
    else if (key === ".") { const first = (here() || $("acts") || document).querySelector("[data-key], #acts .btn, .btn[popovertarget]"); if (first) { event.preventDefault(); first.focus(); } }
    else if (key === "p" && page) pause();
    else if (key === "t") theme();
    else if (key === "?") { event.preventDefault(); $("keys")?.togglePopover?.(); }
    else if ("ursa".includes(key) && key.length === 1 && act(key)) event.preventDefault();  // or the field gets the letter
  });

  zone(); tick(); marked();
  setInterval(tick, 1000);
})();
