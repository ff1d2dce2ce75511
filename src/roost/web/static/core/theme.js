// Light, dark, or as the system is.

import { redraw } from "./redraw.js";

const ORDER = ["system", "light", "dark"];
const KEY = "roost-theme";

const chosen = () => localStorage.getItem(KEY) ?? "system";

export function themeWord() {
  return `Colours: ${chosen() === "system" ? "as the system" : chosen()}`;
}

/** Go to the next one; charts hear of it by the event and draw their axes again. */
export function switchTheme() {
  const next = ORDER[(ORDER.indexOf(chosen()) + 1) % ORDER.length];
  if (next === "system") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, next);
    document.documentElement.dataset.theme = next;
  }
  tell();
  redraw();
}

const tell = () => document.dispatchEvent(new CustomEvent("roost-theme"));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
