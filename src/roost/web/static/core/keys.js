// The keyboard: go somewhere, filter, walk through rows. Nothing of it works while one types.

import { go } from "./router.js";

/** Where `g` and a letter lead; shown by `?`. */
export const PLACES = [
  ["h", "/", "Home"],
  ["c", "/cluster", "Cluster"],
  ["j", "/jobs", "Jobs"],
  ["q", "/queues", "Queues"],
  ["u", "/usage", "Usage"],
  ["s", "/submit", "Submit"],
  ["l", "/lab", "Lab"],
  ["t", "/templates", "Templates"],
  ["a", "/alerts", "Alerts"],
];

let leads = 0;

export function listenToKeys(help) {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (typing(event.target)) {
      if (event.key === "Escape" && event.target instanceof HTMLElement) event.target.blur();
      return;
    }
    if (act(event.key, help)) event.preventDefault();
  });
}

function act(key, help) {
  if (Date.now() - leads < 1500) {
    leads = 0;
    const place = PLACES.find(([letter]) => letter === key);
    if (place) go(place[1]);
    return Boolean(place);
  }
  if (key === "g") leads = Date.now();
  else if (key === "?") help();
  else if (key === "/") return focusOn(document.querySelector("[data-filter]"));
  else if (key === "j" || key === "k") return walk(key === "j" ? 1 : -1);
  else return false;
  return true;
}

function typing(target) {
  return target.closest?.("input, textarea, select, [contenteditable]") !== null;
}

function walk(step) {
  const links = [...document.querySelectorAll("[data-row]")];
  const index = links.indexOf(document.activeElement);
  const next = index < 0 ? (step > 0 ? 0 : links.length - 1) : index + step;
  return focusOn(links[next]);
}

function focusOn(element) {
  element?.focus();
  return Boolean(element);
}
