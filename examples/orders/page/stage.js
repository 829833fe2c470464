"use strict";
// Keeps the stage up to date: the server sends the elements that changed, and each is merged into the page, so that focus and
// half-made clicks survive. Without this script the page reloads itself, and its buttons are plain forms.

const order = new URLSearchParams(location.search).get("order") || "";
const asked = order ? `?order=${encodeURIComponent(order)}` : "";
let stream = null, poll = 0;

function merge(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || old.id !== now.id) {
    old.replaceWith(now.cloneNode(true));
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.nodeValue !== now.nodeValue) old.nodeValue = now.nodeValue;
    return;
  }
  for (const { name } of [...old.attributes]) if (!now.hasAttribute(name)) old.removeAttribute(name);
  for (const { name, value } of now.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  const before = [...old.childNodes], after = [...now.childNodes];
  after.forEach((child, n) => (before[n] ? merge(before[n], child) : old.append(child.cloneNode(true))));
  before.slice(after.length).forEach((child) => child.remove());
}

function show(parts) {
  document.querySelector(".stage").classList.remove("stage--old");
  for (const [id, html] of Object.entries(parts)) {
    const old = document.getElementById(id);
    const made = document.createElement("template");
    made.innerHTML = html;
    if (old && made.content.firstElementChild) merge(old, made.content.firstElementChild);
  }
}

async function look() {
  try {
    const answer = await fetch(`/fragments${asked}`, { cache: "no-store" });
    if (answer.ok) show(await answer.json());
  } catch { document.querySelector(".stage").classList.add("stage--old"); }
}

function listen() {
  close();
  if (document.hidden) return;
  stream = new EventSource(`/events${asked}`);
  stream.onmessage = (message) => show(JSON.parse(message.data));
  stream.onerror = () => document.querySelector(".stage").classList.add("stage--old");
  poll = setInterval(look, 5000);
}

function close() {
  if (stream) stream.close();
  stream = null;
  clearInterval(poll);
}

function toast(text) {
  const box = document.createElement("div");
  box.className = "toast toast--need";
  const words = document.createElement("div");
  words.textContent = text;
  box.append(words);
  document.getElementById("toasts").append(box);
  setTimeout(() => box.remove(), 5000);
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  event.preventDefault();
  const body = new URLSearchParams(new FormData(form, event.submitter));
  try {
    const answer = await fetch(form.getAttribute("action"), { method: "POST", body, headers: { Accept: "application/json" } });
    if (!answer.ok) toast((await answer.json()).message);
    await look();
  } catch { toast("The demo does not answer: it has ended."); }
});

const theme = document.getElementById("theme");
theme.hidden = false;
theme.addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
document.addEventListener("visibilitychange", listen);
addEventListener("pagehide", close);
listen();
