// Moving about in the timeline: drag, wheel, pinch and keys; pointing at a bar, following a job.

// --- moving about -----------------------------------------------------------------------------------

/** Show a stretch of time, kept within the run and above the closest zoom. */
function lookAt(from, to) {
  const span = Math.min(contents.horizon, Math.max(MIN_SPAN, to - from));
  view.from = Math.max(0, Math.min(from + (to - from - span) / 2, contents.horizon - span));
  view.to = view.from + span;
  drawTimeline();
}

/** Zoom by a factor around a moment that stays where it is. */
function zoom(factor, around = (view.from + view.to) / 2) {
  const span = Math.min(contents.horizon, Math.max(MIN_SPAN, (view.to - view.from) * factor));
  const part = (around - view.from) / (view.to - view.from);
  lookAt(around - part * span, around + (1 - part) * span);
}

function move(ticks, pixelsDown = 0) {
  view.top += pixelsDown;
  lookAt(view.from + ticks, view.to + ticks);
}

function seeEverything() {
  view.top = 0;
  lookAt(0, contents.horizon);
}

function tallerRows(factor) {
  const before = view.row;
  view.row = Math.min(28, Math.max(1, view.row * factor));
  view.top *= view.row / before;
  drawTimeline();
}

const KEYS = {
  ArrowLeft: () => move(-(view.to - view.from) * 0.15),
  ArrowRight: () => move((view.to - view.from) * 0.15),
  ArrowUp: () => move(0, -60),
  ArrowDown: () => move(0, 60),
  "+": () => zoom(1 / 1.6),
  "=": () => zoom(1 / 1.6),
  "-": () => zoom(1.6),
  0: seeEverything,
  Home: seeEverything,
  Escape: () => follow(null),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in KEYS)) return;
  event.preventDefault();
  KEYS[event.key]();
}

/** The wheel zooms with Ctrl (a pinch on a touchpad) or once the timeline has the focus. */
function onWheel(event) {
  if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
  event.preventDefault();
  if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
    move(((event.deltaX || event.deltaY) * (view.to - view.from)) / view.width);
  } else {
    zoom(
      Math.exp(Math.max(-120, Math.min(120, event.deltaY)) * (event.ctrlKey ? 0.008 : 0.003)),
      timeAt(event.offsetX),
    );
  }
}

const fingers = new Map();
let dragged = 0;

function onDown(event) {
  canvas.setPointerCapture(event.pointerId);
  fingers.set(event.pointerId, [event.offsetX, event.offsetY]);
  dragged = 0;
}

function onMove(event) {
  const before = fingers.get(event.pointerId);
  if (before === undefined) return pointAt(event);
  const now = [event.offsetX, event.offsetY];
  dragged += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
  if (fingers.size === 2) pinch(event.pointerId, before, now);
  else if (dragged > 3) move((before[0] - now[0]) / pixelsPerTick(), before[1] - now[1]);
  fingers.set(event.pointerId, now);
  hideTip();
}

function pinch(finger, before, now) {
  const [other] = [...fingers].filter(([id]) => id !== finger).map(([, at]) => at);
  const apart = (at) => Math.max(8, Math.abs(at[0] - other[0]));
  zoom(apart(before) / apart(now), timeAt((now[0] + other[0]) / 2));
}

function onUp(event) {
  const known = fingers.delete(event.pointerId);
  if (known && dragged <= 3 && event.type === "pointerup")
    follow(barAt(event.offsetX, event.offsetY)?.job ?? null);
}

// --- one job ------------------------------------------------------------------------------------------

/** The bar under a point of the canvas, or null. */
function barAt(x, y) {
  if (x < GUTTER || y < AXIS || rowCount === 0) return null;
  const bars = barsOf(inDetail);
  const row = rowAt(y);
  const time = timeAt(x);
  const slack = 1 / pixelsPerTick();
  for (let above = row; above >= Math.max(0, row - bars.tallest + 1); above -= 1) {
    for (
      let i = firstAfter(bars, above, time - slack);
      i < bars.rowStart[above + 1] && bars.start[i] <= time + slack;
      i += 1
    ) {
      const { y: top, height } = barBox(bars, i, above);
      if (bars.end[i] >= time - slack && y >= top && y <= top + height)
        return { bars, index: i, job: bars.job[i], row: above };
    }
  }
  return null;
}

function rowAt(y) {
  let low = 0;
  let high = rowCount - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (rowTop(middle) <= y - AXIS + view.top) low = middle;
    else high = middle - 1;
  }
  return low;
}

function pointAt(event) {
  const found = barAt(event.offsetX, event.offsetY);
  canvas.classList.toggle("on-bar", found !== null);
  if (found === null) return hideTip();
  const { bars, index, job, row } = found;
  const node = nodeOfRow[row];
  const gpu = row - node.first;
  const span = bars.span[index];
  showTip(event.clientX, event.clientY, idOf(job), [
    { name: "Queue", value: queues[intake().queue[job]] },
    { name: "GPUs of the job", value: amount(intake().gpus[job]) },
    {
      name: "Here",
      value: `${node.name}, GPU ${span > 1 ? `${gpu}–${gpu + span - 1}` : gpu}${bars.share[index] < 1000 ? `, share ${bars.share[index] / 1000}` : ""}`,
    },
    { name: "Held for", value: duration((bars.end[index] - bars.start[index]) * tick) },
    { name: "From", value: moment(bars.start[index] * tick) },
    { name: "Run time alone", value: duration(intake().work[job] * tick) },
  ]);
}

/** Follow one job: light its bars, dim the others, and tell its story below. */
function follow(job) {
  view.followed = job;
  byId("timeline-job").replaceChildren(...(job === null ? [] : jobCard(job)));
  drawTimeline();
}

/** Follow a job and bring all its bars into view. */
function goTo(job) {
  const bars = barsOf(inDetail);
  const own = Array.from({ length: bars.count }, (_, i) => i).filter((i) => bars.job[i] === job);
  const from = Math.min(intake().submitted[job], ...own.map((i) => bars.start[i]));
  const to = Math.max(from + 1, ...own.map((i) => bars.end[i]));
  if (own.length) view.top = rowTop(rowOfBar(bars, own[0])) - 80;
  lookAt(from - (to - from) * 0.2, to + (to - from) * 0.2);
  follow(job);
  byId("timeline").scrollIntoView({
    block: "start",
    behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
  });
}

function jobCard(job) {
  const bars = barsOf(inDetail);
  const own = Array.from({ length: bars.count }, (_, i) => i).filter((i) => bars.job[i] === job);
  const place = tableRowOf(job);
  const facts = [
    ["Queue", queues[intake().queue[job]]],
    ["GPUs", amount(intake().gpus[job])],
    ["Submitted", moment(intake().submitted[job] * tick)],
    ["Run time alone", duration(intake().work[job] * tick)],
    ["Bars", whole(own.length)],
    ...(place < 0 ? [] : jobFacts(place)),
  ];
  return [
    el("h3", {}, idOf(job)),
    el(
      "dl",
      {},
      facts.map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
    ),
    el("button", { type: "button", class: "plain", onclick: () => follow(null) }, "Stop following"),
  ];
}

// --- start ----------------------------------------------------------------------------------------------

function startTimeline() {
  if (contents.policies.every(({ bars }) => bars.total === 0)) {
    byId("timeline-stage").replaceChildren(
      el("p", { class: "empty" }, "The timeline was not recorded."),
    );
    byId("timeline-help").hidden = true;
    return;
  }
  view.row = Math.max(
    2,
    Math.min(13, Math.floor((STAGE_HEIGHT - nodes.length * NODE_GAP) / rowCount)),
  );
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", seeEverything);
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("keydown", onKey);
  overview.addEventListener("pointerdown", slide);
  overview.addEventListener("pointermove", (event) => event.buttons && slide(event));
  addZoomButtons();
  watch(() => {
    mixPaint();
    drawTimeline();
  });
  describeTimeline();
  watchDetail(() => {
    describeTimeline();
    follow(null);
  });
}

/** Centre the view on a place of the overview. */
function slide(event) {
  const middle = ((event.offsetX - GUTTER) / (view.width - GUTTER)) * contents.horizon;
  const span = view.to - view.from;
  lookAt(middle - span / 2, middle + span / 2);
}

function addZoomButtons() {
  const buttons = [
    ["−", "Zoom out", () => zoom(1.6)],
    ["+", "Zoom in", () => zoom(1 / 1.6)],
    ["All", "See everything", seeEverything],
    ["↕−", "Lower rows", () => tallerRows(1 / 1.4)],
    ["↕+", "Higher rows", () => tallerRows(1.4)],
  ];
  byId("timeline-zoom").replaceChildren(
    ...buttons.map(([text, label, act]) =>
      el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text),
    ),
  );
  byId("timeline-keys").replaceChildren(
    ...queues
      .slice(0, QUEUE_HUES)
      .map((queue, i) =>
        el(
          "li",
          {},
          el("i", { class: `queue-${i}` }),
          i === QUEUE_HUES - 1 && queues.length > QUEUE_HUES ? "other queues" : queue,
        ),
      ),
  );
}

function describeTimeline() {
  const { bars, name } = inDetail;
  canvas.setAttribute(
    "aria-label",
    `Timeline of ${name}: GPUs as rows, time from left to right. The table of jobs below has the same jobs.`,
  );
  const unused = contents.nodes - nodes.length;
  const parts = [
    `Rows: GPUs by node. Bars: runs, coloured by queue`,
    bars.total > bars.job.length
      ? `the ${whole(bars.job.length)} largest of ${whole(bars.total)} bars, ${percent(bars.shown)} of the GPU time held`
      : null,
    unused > 0 ? `${plural(unused, "node")} never used` : null,
  ];
  byId("timeline-note").textContent = parts.filter(Boolean).join("; ");
}
