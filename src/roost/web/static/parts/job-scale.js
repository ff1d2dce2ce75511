// Another number of workers for a job.

import { html } from "../vendor/lit-html.js";
import { part, post } from "../core/api.js";
import { ask } from "./dialog.js";
import { notify, notifyFault } from "./notices.js";
import { plain } from "./format.js";

export async function scaleJob(job, resource) {
  const { min, max } = job.workers;
  const text = await ask({
    title: `Scale ${plain(job.id)}`,
    action: "Scale",
    field: {
      label: "Workers",
      value: min === max ? String(max) : `${min}..${max}`,
      hint: "A number, or a range such as 1..8",
    },
    body: html`<p>
        ${job.elastic || job.resizable ? "The policy chooses a size within the range." : "It restarts from its last checkpoint with the new size."}
      </p>
      <p class="hint">As a command: <code>roost scale ${plain(job.id)} 1..8</code></p>`,
  });
  if (text === null) return;
  const found = /^\s*(\d+)\s*(?:\.\.\s*(\d+)\s*)?$/.exec(text);
  if (!found) {
    notify(`"${text}" is neither a number nor a range such as 1..8`, { bad: true });
    return;
  }
  try {
    const least = Number(found[1]);
    await post(`/jobs/${part(job.id)}/scale`, { min: least, max: Number(found[2] ?? least) });
    notify("The new size is noted");
    resource.reload();
  } catch (error) {
    notifyFault(error);
  }
}
