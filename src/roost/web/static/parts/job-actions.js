// What can be done to jobs: the words, the command lines and the calls.

import { html, nothing } from "../vendor/lit-html.js";
import { post } from "../core/api.js";
import { may } from "../core/session.js";
import { ask } from "./dialog.js";
import { quoted, sameAs } from "./copy.js";
import { notify } from "./notices.js";
import { plain, plural } from "./format.js";
import { isOver } from "./states.js";

/** Each action: its word, when a job allows it, and what is said before. */
export const ACTIONS = {
  cancel: {
    word: "Cancel",
    allows: (job) => !isOver(job) && !job.cancelling,
    warns: "What they did since their last checkpoints is lost.",
    danger: true,
  },
  suspend: {
    word: "Suspend",
    allows: (job) => ["queued", "starting", "running", "resizing"].includes(job.state) && !job.held,
    warns: "They leave their GPUs until they are resumed.",
  },
  resume: {
    word: "Resume",
    allows: (job) => !isOver(job) && job.held,
    warns: "They go on as soon as there is room.",
  },
  rerun: {
    word: "Run again",
    allows: isOver,
    warns: "A new job is made of each, with the same job file.",
  },
  delete: {
    word: "Delete",
    allows: isOver,
    warns: "Their logs, files and checkpoints are deleted, for good.",
    danger: true,
  },
};

/** Ask, with the names of all that are meant, and do it. Returns whether it was done. */
export async function actOn(action, jobs) {
  const { word, allows, warns, danger } = ACTIONS[action];
  const meant = jobs.filter(allows);
  if (!meant.length) {
    notify(`None of ${plural(jobs.length, "job")} can do that now.`);
    return false;
  }
  const ids = meant.map((job) => job.id);
  const left = jobs.length - meant.length;
  const yes = await ask({
    title: `${word}: ${plural(meant.length, "job")}`,
    action: word,
    danger,
    body: html`<p>${warns}</p>
      <ul class="names" tabindex="0" aria-label="Jobs">
        ${meant.map((job) => html`<li>${plain(job.id)} <span class="muted">${plain(job.user)}, ${job.state}</span></li>`)}
      </ul>
      ${left ? html`<p class="hint">${plural(left, "other chosen job")} cannot do that now, and stays as it is.</p>` : nothing}
      ${sameAs(linesOf(action, ids))}`,
  });
  return yes ? perform(action, ids) : false;
}

async function perform(action, ids) {
  const answer = await post("/jobs/bulk", { action, jobs: ids });
  const bad = answer.items.filter((item) => !item.ok);
  const done = answer.items.length - bad.length;
  if (done) notify(`${ACTIONS[action].word}: ${plural(done, "job")}`);
  for (const item of bad.slice(0, 3)) notify(`${item.job}: ${item.message}`, { bad: true });
  if (bad.length > 3) notify(`${bad.length - 3} more could not be done`, { bad: true });
  return answer.items;
}

/** The same by the command line and the API. */
export function linesOf(action, ids) {
  const words = ids.map(quoted).join(" ");
  const sure = action === "cancel" || action === "delete" ? " -y" : "";
  const body = JSON.stringify({ action, jobs: ids });
  return {
    cli: `roost ${action} ${words}${sure}`,
    api: `curl -X POST ${location.origin}/api/v1/jobs/bulk -H "Authorization: Bearer $TOKEN" -H "Content-Type: application/json" -d '${body}'`,
  };
}

export const mayAct = () => may("jobs:write");
