// A moment: relative to now, with the whole date when it is pointed at.

import { html } from "../vendor/lit-html.js";
import { NONE, absolute, relative } from "./format.js";

export function since(time) {
  if (time === null || time === undefined) return NONE;
  return html`<time datetime=${new Date(time * 1000).toISOString()} title=${absolute(time)}>${relative(time)}</time>`;
}
