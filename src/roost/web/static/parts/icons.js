// Small drawings, always beside a word: no meaning hangs on them alone.

import { svg } from "../vendor/lit-html.js";
import { html } from "../vendor/lit-html.js";

const SHAPES = {
  queued: svg`<circle cx="8" cy="8" r="6"/><path d="M8 4.5V8l2.5 1.5"/>`,
  starting: svg`<path d="M8 2a6 6 0 1 1-6 6" /><path d="M6.5 5.5 10 8l-3.5 2.5z" class="solid"/>`,
  running: svg`<path d="M5 3.2v9.6L13 8z" class="solid"/>`,
  suspended: svg`<path d="M5.5 3.5v9M10.5 3.5v9"/>`,
  resizing: svg`<path d="M2 8h12M5 5 2 8l3 3M11 5l3 3-3 3"/>`,
  succeeded: svg`<path d="m3 8.5 3.5 3.5L13 4.5"/>`,
  failed: svg`<path d="m4 4 8 8M12 4l-8 8"/>`,
  cancelled: svg`<circle cx="8" cy="8" r="6"/><path d="m4 12 8-8"/>`,
  warning: svg`<path d="M8 2.2 14.5 13.5h-13z"/><path d="M8 6.5v3.2M8 11.4v.6"/>`,
  bell: svg`<path d="M3.5 11.5h9c-1-1-1.2-2-1.2-4.2a3.3 3.3 0 0 0-6.6 0c0 2.2-.2 3.2-1.2 4.2zM6.8 13.5h2.4"/>`,
  copy: svg`<rect x="5.5" y="5.5" width="8" height="8" rx="1.5"/><path d="M3.5 10.5h-1v-8h8v1"/>`,
  drained: svg`<path d="M2 14 14 2M2 8l6-6M8 14l6-6"/>`,
  up: svg`<path d="M8 13V3.5M4 7.5l4-4 4 4"/>`,
  down: svg`<path d="M8 3v9.5M4 8.5l4 4 4-4"/>`,
  theme: svg`<circle cx="8" cy="8" r="6"/><path d="M8 2a6 6 0 0 1 0 12z" class="solid"/>`,
};

/** A drawing by its name. */
export function icon(name) {
  return html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${SHAPES[name] ?? SHAPES.queued}</svg>`;
}

/** The bird on its perch. */
export const bird = html`<svg class="bird" viewBox="0 0 24 24" aria-hidden="true">
  <path
    class="bird-body"
    d="M3 9.5 9.2 8l3.3-4.2c.5-.7 1.5-.8 2.1-.3l1.5 1.2 3.4.3-2.6 1.8c.6 4.2-2 7.7-6.3 8.2H8.9C6 15 3.8 12.9 3 9.5Z"
  />
  <path class="bird-perch" d="M2 18.5h20" />
</svg>`;
