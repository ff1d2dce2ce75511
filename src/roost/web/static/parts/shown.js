// What is shown of a question to the server: never "empty" while it loads, never blank when it fails.

import { html, nothing } from "../vendor/lit-html.js";
import { clock, plain } from "./format.js";
import { icon } from "./icons.js";

/**
 * A value with `ready(value)`; before it a skeleton, beside it what went wrong.
 *
 * @template T
 * @param {import("../core/resource.js").Resource<T>} resource
 * @param {(value: T) => any} ready
 */
export function shown(resource, ready, { lines = 3 } = {}) {
  const { value, error } = resource;
  if (value !== undefined) return html`${error ? fault(resource) : nothing}${ready(value)}`;
  return error ? fault(resource) : skeleton(lines);
}

export function skeleton(lines = 3) {
  return html`<div class="skeleton" role="status" aria-label="Loading">
    ${Array.from({ length: lines }, () => html`<span></span>`)}
  </div>`;
}

/** Why something could not be had, and how old what is shown is. */
export function fault(resource) {
  const { error, value, at } = resource;
  const missing = error.status === 404 && value === undefined;
  return html`<div class="banner banner-bad" role="alert">
    ${icon("warning")}
    <div>
      <strong>${headline(error)}</strong>
      <div class="hint">
        ${error.status === 403 ? plain(error.message) : plain(error.hint)}
        ${value !== undefined ? `What is shown is from ${clock(at / 1000)}.` : ""}
      </div>
    </div>
    ${missing ? nothing : html`<button type="button" @click=${() => resource.reload()}>Try again</button>`}
  </div>`;
}

function headline(error) {
  if (error.status === 403) return "Your role does not allow this";
  // A route that is not there has no sentence of its own.
  if (error.message === "Not Found") return "This server does not tell this: it is of another version than this page";
  return plain(error.message);
}

/** Nothing there, and what to do about it. @param {any} title @param {any} [more] */
export function empty(title, more = nothing) {
  return html`<div class="empty">
    <p class="empty-title">${title}</p>
    ${more}
  </div>`;
}
