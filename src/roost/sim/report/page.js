// The start: choices that concern the whole page, then everything is drawn once.

const THEMES = ["auto", "light", "dark"];
const THEME_NAMES = { auto: "as the system", light: "light", dark: "dark" };

/** Local storage may be forbidden for files; the choice is then kept for this visit only. */
function remembered(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // Nothing lost but the memory of a choice.
  }
}

function setTheme(theme) {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").setAttribute("aria-label", `Colours: ${THEME_NAMES[theme]}`);
  byId("theme").title = `Colours: ${THEME_NAMES[theme]}`;
}

function startTheme() {
  let theme = THEMES.includes(remembered("roost-theme")) ? remembered("roost-theme") : "auto";
  setTheme(theme);
  byId("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    setTheme(theme);
    remember("roost-theme", theme);
    redrawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
}

/** Selects that choose the policy shown in detail; they always agree. */
function startDetail() {
  const selects = [...document.querySelectorAll(".shown-policy")];
  for (const select of selects) {
    fillSelect(
      select,
      policies.map(({ name, index }) => ({ value: String(index), label: name })),
      "0",
    );
    select.addEventListener("change", () => {
      selects.forEach((other) => (other.value = select.value));
      showInDetail(policies[Number(select.value)]);
    });
  }
}

/** Draw again when the width changes; heights follow from what is drawn. */
function watchWidth() {
  let width = byId("main").clientWidth;
  new ResizeObserver(() => {
    if (byId("main").clientWidth === width) return;
    width = byId("main").clientWidth;
    redrawAll();
  }).observe(byId("main"));
}

function startCharts() {
  const twins = [
    twin("cdf-twin", completionTable),
    twin("split-twin", splitTable),
    twin("use-twin", useTable),
    twin("load-twin", loadTable),
  ];
  const fillTwins = () => twins.forEach((fill) => fill());
  segmented(byId("load-kinds"), LOADS, load.value, (value) => {
    load = LOADS.find((one) => one.value === value);
    drawLoad();
    fillTwins();
  });
  segmented(byId("split-kinds"), SPLITS, split, (value) => {
    split = value;
    drawSplit();
  });
  [
    drawLegend,
    drawComparison,
    drawCompletion,
    drawSplit,
    drawUse,
    drawLoad,
    drawGroups,
    fillTwins,
  ].forEach(watch);
}

startTheme();
drawIntro();
drawTiles();
startComparison();
startGroups();
startCharts();
startDetail();
startTimeline();
startJobs();
drawSmallPrint();
watchWidth();
