// An address that no page has.

import { html } from "../vendor/lit-html.js";
import { place } from "../core/router.js";
import { plain } from "../parts/format.js";
import { empty } from "../parts/shown.js";

export function open() {
  return {
    title: () => "No such page",
    view: () =>
      html`<h1>No such page</h1>
        ${empty(html`There is nothing at <code>${plain(place.path)}</code>.`, html`<a class="button" href="/">Go home</a>`)}`,
  };
}
