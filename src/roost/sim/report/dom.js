// Making elements. Nothing here knows what the page is about.

const SVG = document.querySelector("svg").namespaceURI;

/** Make an HTML element: el("p", {class: "note", onclick: f}, "text", child, …). */
function el(tag, attributes = {}, ...children) {
  return dress(document.createElement(tag), attributes, children);
}

/** Make an SVG element. */
function shape(tag, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, tag), attributes, children);
}

function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") setStyle(element, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined),
  );
  return element;
}

/** Set style properties one by one: the page's security policy forbids style attributes. */
function setStyle(element, style) {
  for (const [name, value] of Object.entries(style)) element.style.setProperty(name, value);
}

function byId(id) {
  return document.getElementById(id);
}

/** Make a row of buttons of which one is chosen. */
function segmented(host, choices, chosen, choose) {
  const buttons = choices.map(({ value, label }) =>
    el(
      "button",
      { type: "button", "aria-pressed": String(value === chosen), onclick: () => pick(value) },
      label,
    ),
  );
  function pick(value) {
    choices.forEach((choice, i) =>
      buttons[i].setAttribute("aria-pressed", String(choice.value === value)),
    );
    choose(value);
  }
  host.replaceChildren(...buttons);
}

function fillSelect(select, choices, chosen) {
  select.replaceChildren(
    ...choices.map(({ value, label }) =>
      el("option", { value, selected: value === chosen }, label),
    ),
  );
}

/** Make a table: head is a list of cells, rows a list of lists of cells; the first names its row. */
function simpleTable(caption, head, rows) {
  return el(
    "table",
    {},
    el("caption", { class: "hidden" }, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((cell, i) => el("th", { scope: "col", class: i ? "number" : null }, cell)),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map(([name, ...cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, name),
          cells.map((cell) => el("td", { class: "number" }, cell)),
        ),
      ),
    ),
  );
}

/** Fill a chart's table twin when it is first opened, and again whenever it is open and told to. */
function twin(id, make) {
  const details = byId(id);
  const fill = () => details.open && details.lastElementChild.replaceChildren(make());
  details.addEventListener("toggle", fill);
  return fill;
}

/** A header cell that sorts its table; calls sort(key) when pressed. */
function sortHead({ key, label, hint, sorted, number, sort }) {
  const arrow = el(
    "span",
    { class: "arrow", "aria-hidden": "true" },
    sorted ? (sorted > 0 ? "↑" : "↓") : "",
  );
  return el(
    "th",
    {
      scope: "col",
      class: number ? "number" : null,
      "aria-sort": sorted ? (sorted > 0 ? "ascending" : "descending") : "none",
    },
    el(
      "button",
      { type: "button", class: "sort", title: hint, "data-key": key, onclick: () => sort(key) },
      number ? [arrow, label] : [label, arrow],
    ),
  );
}

/** Call draw once per frame however often it is asked for. */
function oncePerFrame(draw) {
  let waiting = false;
  return () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      draw();
    });
  };
}

// --- the read-out that follows the pointer --------------------------------------------------

const tip = byId("tip");

/** Show lines of text near a point of the window. A row is {name, value, swatch}. */
function showTip(x, y, title, rows) {
  tip.replaceChildren(
    el("div", { class: "tip-title" }, title),
    ...rows.map((row) =>
      el(
        "div",
        { class: "tip-row" },
        row.swatch ?? "",
        el("span", {}, row.name),
        el("b", {}, row.value),
      ),
    ),
  );
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 16 + box.width > innerWidth - 8 ? x - box.width - 16 : x + 16;
  setStyle(tip, {
    left: `${Math.max(8, left)}px`,
    top: `${Math.max(8, Math.min(y + 12, innerHeight - box.height - 8))}px`,
  });
}

function hideTip() {
  tip.hidden = true;
}
