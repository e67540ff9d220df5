"use strict";
// Updates of the page, ages of times, and a key for the search. Everything works without it, after a reload.
const main = document.getElementById("main");
const live = document.getElementById("live");

function age(time) {
  const seconds = Math.round((Date.now() - time) / 1000);
  const all = Math.abs(seconds);
  const text = all < 120 ? all + "s" : all < 7200 ? Math.floor(all / 60) + "m" : all < 172800 ? Math.floor(all / 3600) + "h" : Math.floor(all / 86400) + "d";
  return seconds < 0 ? "in " + text : text + " ago";
}

function ages(root) {
  for (const time of root.querySelectorAll("time")) {
    if (!time.title) time.title = time.textContent;
    const text = age(Date.parse(time.dateTime));
    if (time.textContent !== text) time.textContent = text;
  }
}

// keep remembers in a part what a person is at, and returns what restores it.
function keep(part) {
  const open = [...part.querySelectorAll("[tabindex], a, button, input, select, textarea")].indexOf(document.activeElement);
  const scrolled = [...part.querySelectorAll("pre")].map((pre) => pre.scrollLeft);
  return () => {
    if (open >= 0) part.querySelectorAll("[tabindex], a, button, input, select, textarea")[open]?.focus({ preventScroll: true });
    part.querySelectorAll("pre").forEach((pre, i) => { pre.scrollLeft = scrolled[i] || 0; });
  };
}

// late are parts that are not replaced while a text in them is selected.
const late = new Map();

function replace(update) {
  const part = document.getElementById(update.id);
  if (!part || part.dataset.digest === update.digest) return;
  const selection = document.getSelection();
  if (selection && !selection.isCollapsed && part.contains(selection.anchorNode)) {
    late.set(update.id, update);
    return;
  }
  late.delete(update.id);
  const restore = keep(part);
  part.innerHTML = update.html; // The server has escaped it, and the policy of the page runs no script in it.
  part.dataset.digest = update.digest;
  ages(part);
  restore();
}

let source = null;

function say(text, tone) {
  live.textContent = text;
  live.className = "pill " + tone;
}

function follow() {
  if (source || document.hidden) return;
  source = new EventSource(main.dataset.stream);
  source.onopen = () => say("live", "good");
  source.addEventListener("part", (event) => replace(JSON.parse(event.data)));
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) { source = null; say("not updated: reload the page", "bad"); } else say("connecting", "waiting");
  };
}

function leave() {
  if (source) source.close();
  source = null;
}

if (main.dataset.stream) {
  say("connecting", "waiting");
  follow();
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  window.addEventListener("pagehide", leave);
  window.addEventListener("pageshow", follow);
  document.addEventListener("selectionchange", () => late.forEach(replace));
}
ages(document);
setInterval(() => ages(document), 1000);

document.addEventListener("keydown", (event) => {
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && search && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName)) {
    event.preventDefault();
    search.focus();
  }
});
