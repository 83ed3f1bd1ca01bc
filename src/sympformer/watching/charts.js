"use strict";
// Physics by depth: a line a model, the slider's place as a dotted line, the figures there in words.
const FRAME = {width: 320, height: 150, left: 44, right: 8, top: 8, bottom: 14};
const DASHES = ["", "6 3", "2 2", "8 3 2 3"];
const charts = []; // what to call when the slider moves

function dashOf(model) { // models of one colour differ by their dashes
  return DASHES[models.filter((other) => other.family === model.family).indexOf(model) % DASHES.length];
}

function buildCharts() {
  const sample = (model) => make("path", {class: "curve", d: "M0 5H32", "stroke-dasharray": dashOf(model)});
  const line = (model) => make("svg", {viewBox: "0 0 32 10", "aria-hidden": "true"}, sample(model));
  $("legend").append(...models.map((model) => make("span", {class: model.family}, line(model), quoted(model.name))));
  for (const [name, title] of Object.entries(scene.quantities)) {
    const owners = models.filter((model) => model.curves[name]?.some((value) => value !== null));
    if (owners.length) $("charts").append(chart(name, title, owners));
  }
}

function chart(name, title, owners) {
  const {width, height, left, right, top, bottom} = FRAME;
  const values = owners.flatMap((model) => model.curves[name]).filter((value) => value !== null);
  let [low, high] = [Math.min(...values), Math.max(...values)];
  const slack = high - low <= 1e-9 * Math.abs(high) ? Math.abs(high) / 2 || 1 : 0; // a level line lies in the middle
  [low, high] = [low - slack, high + slack];
  const across = (share) => left + share * (width - left - right);
  const up = (value) => height - bottom - (value - low) / (high - low) * (height - top - bottom);
  const grid = [low, (low + high) / 2, high].flatMap((value) => [
    make("line", {class: "grid", x1: left, x2: width - right, y1: up(value), y2: up(value)}),
    make("text", {x: left - 5, y: up(value) + 3, "text-anchor": "end"}, short(value)),
  ]);
  const ends = [
    make("text", {x: left, y: height - 2}, "embedding"),
    make("text", {x: width - right, y: height - 2, "text-anchor": "end"}, "last layer"),
  ];
  const now = make("line", {class: "now", y1: top, y2: height - bottom}), said = make("figcaption");
  const curves = owners.map((model) => curve(model, name, across, up));
  charts.push(() => {
    for (const end of ["x1", "x2"]) now.setAttribute(end, across(share()));
    said.replaceChildren(...reading(name, owners));
  });
  const frame = {viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title} by depth`};
  return make("figure", {}, make("h3", {}, title), make("svg", frame, ...grid, ...curves, now, ...ends), said);
}

// The stages a curve has values at: all of them, or those where a layer starts.
const placesOf = (model, name) => model.curves[name].length === model.S ? [...model.stages.keys()] : model.starts;

function curve(model, name, across, up) {
  const values = model.curves[name];
  const spots = placesOf(model, name).map((s, n) => [across(s / Math.max(1, model.S - 1)), values[n]])
    .filter(([, value]) => value !== null).map(([u, value]) => [u.toFixed(1), up(value).toFixed(1)]);
  const d = `M${spots.map((spot) => spot.join(" ")).join("L")}`;
  const line = make("path", {class: "curve", d, "stroke-dasharray": dashOf(model)});
  return make("g", {class: model.family}, line, ...spots.map(([cx, cy]) => make("circle", {cx, cy, r: 2})));
}

function reading(name, owners) {
  const words = models.map((model) => {
    if (!owners.includes(model)) return [quoted(model.name), " has none"];
    const last = placesOf(model, name).findLastIndex((s) => s <= stageOf(model));
    return [quoted(model.name), ` ${short(model.curves[name][Math.max(0, last)])}`];
  });
  return words.flatMap((part, n) => n ? ["; ", ...part] : part);
}
