// Names of the shapes that the server sends, as its own description (/openapi.json) gives them.
// They are for the check of types in the tests; nothing here is loaded by a page.

/** @typedef {import("roost-api").components["schemas"]["JobView"]} JobView */
/** @typedef {import("roost-api").components["schemas"]["JobPage"]} JobPage */
/** @typedef {import("roost-api").components["schemas"]["ExplanationView"]} ExplanationView */
/** @typedef {import("roost-api").components["schemas"]["PlanView"]} PlanView */
/** @typedef {import("roost-api").components["schemas"]["VerdictView"]} VerdictView */
/** @typedef {import("roost-api").components["schemas"]["PlacementView"]} PlacementView */
/** @typedef {import("roost-api").components["schemas"]["NodeView"]} NodeView */
/** @typedef {import("roost-api").components["schemas"]["DeviceView"]} DeviceView */
/** @typedef {import("roost-api").components["schemas"]["QueueView"]} QueueView */
/** @typedef {import("roost-api").components["schemas"]["EventView"]} EventView */
/** @typedef {import("roost-api").components["schemas"]["TokenView"]} TokenView */
/** @typedef {import("roost-api").components["schemas"]["UserView"]} UserView */
/** @typedef {import("roost-api").components["schemas"]["SessionView"]} SessionView */
/** @typedef {import("roost-api").components["schemas"]["AlertList"]} AlertList */
/** @typedef {import("roost-api").components["schemas"]["TemplateView"]} TemplateView */
/** @typedef {import("roost-api").components["schemas"]["LabView"]} LabView */
export {};
