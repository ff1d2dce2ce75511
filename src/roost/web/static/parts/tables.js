// Tables whose rows can be walked through by keys, and whose heads sort.

import { html, nothing } from "../vendor/lit-html.js";
import { icon } from "./icons.js";

/** The head of a column that sorts; `sort` is the field of now, with a minus for the largest first. */
export function sortHead(label, field, sort, choose, kind = "") {
  const up = sort === field;
  const down = sort === `-${field}`;
  const order = up ? "ascending" : down ? "descending" : "none";
  return html`<th scope="col" class=${kind} aria-sort=${order}>
    <button type="button" class="head" @click=${() => choose(up ? `-${field}` : field)}>
      ${label}${up ? icon("up") : down ? icon("down") : nothing}
    </button>
  </th>`;
}

/** Pages of a list: where we are, and the ones before and after. */
export function pager({ offset, limit, total }, move) {
  if (total <= limit && offset === 0) return nothing;
  const last = Math.min(offset + limit, total);
  return html`<nav class="pager" aria-label="Pages">
    <span role="status">${total ? `${offset + 1}–${last} of ${total.toLocaleString("en-GB")}` : "none"}</span>
    <button type="button" ?disabled=${offset === 0} @click=${() => move(Math.max(0, offset - limit))}>
      Previous page
    </button>
    <button type="button" ?disabled=${last >= total} @click=${() => move(offset + limit)}>Next page</button>
  </nav>`;
}

/** A part of something as a bar; `null` is not reported, which is not nothing. */
export function bar(value, label = "") {
  if (value === null || value === undefined) return html`<span class="muted">not reported</span>`;
  const text = `${Math.round(value * 100)} %`;
  return html`<span class="bar-cell"
    ><meter min="0" max="1" .value=${value} aria-label=${`${label} ${text}`}></meter>${text}</span
  >`;
}

/** Rows of names and values. */
export function facts(rows) {
  return html`<dl class="facts">
    ${rows
      .filter((row) => row && row[1] !== "" && row[1] !== null && row[1] !== undefined)
      .map(
        ([name, value]) =>
          html`<div>
            <dt>${name}</dt>
            <dd>${value}</dd>
          </div>`,
      )}
  </dl>`;
}
