// The fields of the form, and how each stands in a job file.

/** Fields with `in` stand in a section of the file; `read` and `write` are of text. */
export const FIELDS = [
  { name: "name", label: "Name", hint: "my-job" },
  { name: "run", alias: "command", label: "Script", many: true, wide: true, read: script, write: writeScript },
  { name: "workers", label: "Workers", hint: "1, or a range: 1..4", read: workers },
  {
    name: "gpus",
    alias: "resources",
    label: "GPUs of each worker",
    hint: "1, 0.5, A100:2",
    read: gpus,
    write: writeGpus,
  },
  { name: "queue", label: "Queue", hint: "default" },
  { name: "priority", label: "Priority", hint: "0", number: true },
  { name: "workdir", label: "Folder", hint: "a path of the server's machine" },
  { name: "image", label: "Container image", hint: "none: a plain process" },
  { name: "max_duration", label: "At most so long", hint: "12h" },
  { name: "labels", label: "Labels", hint: "project=birds, team=a", read: labels, write: writeLabels },
];

export function readField(job, field) {
  if (field.read) return field.read(job);
  const value = job[field.name];
  return value === null || value === undefined ? "" : String(value);
}

/** Set a field from its text; an empty one goes. */
export function writeField(job, field, text) {
  const given = text.trim();
  if (field.write) field.write(job, given);
  else if (given === "") delete job[field.name];
  else job[field.name] = field.number && /^-?\d+$/.test(given) ? Number(given) : text;
}

function script(job) {
  if (job.run) return job.run;
  return Array.isArray(job.command) ? job.command.join(" ") : (job.command ?? "");
}

function writeScript(job, text) {
  delete job.command;
  if (text) job.run = text;
  else delete job.run;
}

function workers(job) {
  const value = job.workers ?? job.nodes;
  if (value === null || value === undefined) return "";
  if (Array.isArray(value)) return value.join("..");
  if (typeof value === "object") return value.min === value.max ? String(value.max) : `${value.min}..${value.max}`;
  return String(value);
}

function gpus(job) {
  const value = job.gpus ?? job.resources?.gpu ?? job.resources?.any_of;
  if (value === null || value === undefined) return "";
  return Array.isArray(value) ? value.join(", ") : String(value);
}

function writeGpus(job, text) {
  delete job.gpus;
  const resources = { ...job.resources };
  delete resources.gpu;
  delete resources.any_of;
  const kinds = text
    .split(",")
    .map((kind) => kind.trim())
    .filter(Boolean);
  if (kinds.length > 1) resources.any_of = kinds;
  else if (kinds.length) resources.gpu = /^[\d.]+$/.test(kinds[0]) ? Number(kinds[0]) : kinds[0];
  if (Object.keys(resources).length) job.resources = resources;
  else delete job.resources;
}

function labels(job) {
  return Object.entries(job.labels ?? {})
    .map(([key, value]) => `${key}=${value}`)
    .join(", ");
}

function writeLabels(job, text) {
  const pairs = text
    .split(",")
    .map((pair) => pair.trim())
    .filter(Boolean);
  const found = pairs.map((pair) => {
    const at = pair.indexOf("=");
    return at < 0 ? [pair, ""] : [pair.slice(0, at).trim(), pair.slice(at + 1).trim()];
  });
  if (found.length) job.labels = Object.fromEntries(found);
  else delete job.labels;
}
