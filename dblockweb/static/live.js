// Keeps a page up to date: the server sends <main> whenever it has changed, and only the nodes that
// differ are touched, so that focus, selection, scrolling and typed text stay.
"use strict";

const main = document.getElementById("main");
const state = document.getElementById("state");
const problem = document.getElementById("problem");
let ahead = Number(document.body.dataset.now) - Date.now(); // of this clock, by which the server's is

// span is the server's text of a duration.
function span(ms) {
  const s = Math.max(Math.trunc(ms / 1000), 0);
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return s + "s";
  if (s < 3600) return Math.trunc(s / 60) + "m" + two(s % 60) + "s";
  if (s < 48 * 3600) return Math.trunc(s / 3600) + "h" + two(Math.trunc((s % 3600) / 60)) + "m";
  return Math.trunc(s / 86400) + "d" + two(Math.trunc((s % 86400) / 3600)) + "h";
}

function tick() {
  const now = Date.now() + ahead;
  for (const time of main.querySelectorAll("time")) {
    const left = Number(time.dataset.until) - now;
    const text = time.dataset.since ? span(now - Number(time.dataset.since)) : left > 0 ? span(left) : "expired";
    if (time.textContent !== text) time.textContent = text;
  }
}

const keyOf = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);

// morph makes a node like another of its kind. What a person has typed or ticked is no attribute, and stays.
function morph(node, like) {
  if (node.nodeType !== Node.ELEMENT_NODE) {
    if (node.nodeValue !== like.nodeValue) node.nodeValue = like.nodeValue;
    return;
  }
  for (const { name } of [...node.attributes]) if (!like.hasAttribute(name)) node.removeAttribute(name);
  for (const { name, value } of like.attributes) if (node.getAttribute(name) !== value) node.setAttribute(name, value);
  morphChildren(node, like);
}

function morphChildren(node, like) {
  const keyed = new Map();
  for (const child of node.children) if (keyOf(child) !== null) keyed.set(keyOf(child), child);
  let at = node.firstChild;
  for (const child of [...like.childNodes]) {
    const key = keyOf(child);
    let match = key === null ? at : keyed.get(key);
    while (key === null && match && keyOf(match) !== null) match = match.nextSibling;
    if (!match || match.nodeName !== child.nodeName) {
      node.insertBefore(document.adoptNode(child), at);
      continue;
    }
    if (match === at) at = at.nextSibling;
    else node.insertBefore(match, at);
    keyed.delete(key);
    morph(match, child);
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function show(html) {
  const focused = document.activeElement;
  morphChildren(main, new DOMParser().parseFromString(html, "text/html").body);
  if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
}

let stream;
let again;

function say(text, live) {
  state.textContent = text;
  state.classList.toggle("live", live);
}

function connect() {
  disconnect();
  stream = new EventSource(location.href);
  stream.addEventListener("main", (event) => {
    const update = JSON.parse(event.data);
    ahead = update.now - Date.now();
    problem.hidden = true;
    say("Live", true);
    show(update.html);
    tick();
  });
  stream.addEventListener("problem", (event) => {
    problem.textContent = JSON.parse(event.data).text + " What is shown is what was read last.";
    problem.hidden = false;
    say("Waiting for the database", false);
  });
  stream.onerror = () => {
    say("Not live: connecting again", false);
    if (stream.readyState === EventSource.CLOSED) again = setTimeout(connect, 5000); // refused: the browser gives up
  };
}

function disconnect() {
  clearTimeout(again);
  if (stream) stream.close();
}

if ("live" in document.body.dataset) {
  setInterval(tick, 1000);
  // A tab that nobody sees needs none, and a browser has but few connections to a server.
  const follow = () => (document.hidden ? disconnect() : connect());
  document.addEventListener("visibilitychange", follow);
  follow();
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select");
  const search = document.querySelector("input[type=search]");
  if (event.key === "/" && !typing && search && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    search.focus();
    search.select();
  }
});
