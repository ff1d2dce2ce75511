// What the live stream tells, put together: the same for the worker that reads the stream and for
// the pages that it tells.

/** The state before anything was heard. */
export function nothing() {
  return {
    jobs: new Map(),
    nodes: new Map(),
    queues: new Map(),
    alerts: new Map(),
    counts: {},
    more: 0,
    version: "",
    assets: "",
    known: false,
  };
}

/** Take in a message; the ids of the jobs that it named. */
export function take(state, kind, told) {
  if (kind === "snapshot") {
    for (const name of ["jobs", "nodes", "queues", "alerts"]) state[name] = new Map();
    state.known = true;
    state.more = told.more ?? 0;
    state.version = told.version ?? state.version;
    state.assets = told.assets ?? state.assets;
  }
  const named = [];
  for (const job of told.jobs ?? []) {
    named.push(job.id);
    const before = state.jobs.get(job.id);
    if (!before || before.rev <= job.rev) state.jobs.set(job.id, job);
  }
  for (const id of told.deleted ?? []) {
    named.push(id);
    state.jobs.delete(id);
  }
  for (const name of ["nodes", "queues", "alerts"])
    for (const one of told[name] ?? []) {
      if (one.gone) state[name].delete(one.id);
      else state[name].set(one.id, one);
    }
  if (told.counts) state.counts = told.counts;
  drop(state.jobs);
  return named;
}

/** Jobs that are over are kept for as long as there are few of them. */
function drop(jobs) {
  if (jobs.size <= 2000) return;
  const over = new Set(["succeeded", "failed", "cancelled"]);
  for (const [id, job] of jobs) if (over.has(job.state) && jobs.size > 1500) jobs.delete(id);
}

/** The state as one message, for a page that comes later. */
export function asSnapshot(state) {
  return {
    jobs: [...state.jobs.values()],
    nodes: [...state.nodes.values()],
    queues: [...state.queues.values()],
    alerts: [...state.alerts.values()],
    counts: state.counts,
    more: state.more,
    version: state.version,
    assets: state.assets,
  };
}
