// The timeline of a job: what it held and when, as bars; the same as a table.

import { html, nothing, svg } from "../vendor/lit-html.js";
import { amount, clock, duration, plain } from "./format.js";
import { since } from "./times.js";

const WIDTH = 1000;
const HEIGHT = 96;
const BASE = 70;

/** Bars of the workers over time; the height is how many there are, waiting is a thin line. */
export function spansView({ spans, marks, now }) {
  if (!spans.length) return nothing;
  const from = spans[0].begin;
  const to = Math.max(now, from + 1);
  const x = (time) => ((time - from) / (to - from)) * WIDTH;
  const most = Math.max(1, ...spans.map((span) => span.workers || 0));
  return html`<figure class="spans">
    <svg
      viewBox="0 0 ${WIDTH} ${HEIGHT}"
      preserveAspectRatio="none"
      role="img"
      aria-label="Timeline of what the job held; the table below has the same"
    >
      ${spans.map((span) => {
        const width = Math.max(1.5, x(span.end ?? now) - x(span.begin));
        const tall = span.workers ? Math.max(10, (span.workers / most) * 56) : 4;
        return svg`<rect class="span span-${span.kind}" x=${x(span.begin)} y=${BASE - tall} width=${width} height=${tall}>
          <title>${words(span, now)}</title></rect>`;
      })}
      <line class="span-axis" x1="0" x2=${WIDTH} y1=${BASE} y2=${BASE} />
      ${(marks ?? []).map((mark) => svg`<path class="span-mark" d="M${x(mark.time)} ${BASE + 4}l5 10h-10z"><title>${plain(mark.text)}</title></path>`)}
    </svg>
    <figcaption>
      <span>${clock(from)}</span><span>height: workers, ${most} at most</span><span>${clock(to)}</span>
    </figcaption>
  </figure>`;
}

function words(span, now) {
  const held = span.workers ? `, ${span.workers} workers, ${amount(span.gpus)} GPUs` : "";
  return plain(`${span.kind}${held} for ${duration((span.end ?? now) - span.begin)}. ${span.text ?? ""}`);
}

export function spanTable({ spans, now }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Timeline as a table">
    <table>
      <thead>
        <tr>
          <th scope="col">Attempt</th>
          <th scope="col">What</th>
          <th scope="col">From</th>
          <th scope="col" class="number">For</th>
          <th scope="col" class="number">Workers</th>
          <th scope="col" class="number">GPUs</th>
          <th scope="col">Where</th>
          <th scope="col">Why</th>
        </tr>
      </thead>
      <tbody>
        ${spans.toReversed().map(
          (span) =>
            html`<tr>
              <td>${span.attempt || "–"}</td>
              <td>${span.kind}</td>
              <td>${since(span.begin)}</td>
              <td class="number">${duration((span.end ?? now) - span.begin)}</td>
              <td class="number">${span.workers || "–"}</td>
              <td class="number">${amount(span.gpus)}</td>
              <td>${placementText(span.placement)}</td>
              <td>${plain(span.text)}</td>
            </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

export function placementText(placement) {
  if (!placement?.length) return "–";
  return placement
    .map((part) => {
      const share = part.share < 1 ? ` (${Math.round(part.share * 100)} % of each)` : "";
      const gpus = part.gpus.length ? ` GPU ${part.gpus.join(", ")}${share}` : "";
      const role = part.role === "worker" ? "" : ` ${part.role}`;
      return plain(`${part.node}${role}${gpus}`);
    })
    .join("; ");
}
