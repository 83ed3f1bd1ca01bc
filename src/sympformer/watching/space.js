"use strict";
// A model's space: tokens on two axes, their ways, momenta, and the attention row of the chosen one.
const WIDTH = 400, HEIGHT = 300, MARGIN = 22;
const REACH = 24; // how near to a token one points at it
const ARROW = 45; // the longest momentum

// --- axes: two rows of numbers over the kept directions

const dot = (a, b) => a.reduce((sum, value, k) => sum + value * b[k], 0);
const without = (v, a) => v.map((value, k) => value - dot(v, a) * a[k]);
const basis = (model, k) => Array.from({length: model.directions}, (_, i) => i === k ? 1 : 0);

function unit(a) {
  const size = Math.sqrt(dot(a, a));
  return size > 1e-9 ? a.map((value) => value / size) : null;
}

function axesOf(model, stage) {
  if (state.axes === "own") return model.axes[stage];
  if (state.axes === "shared") return [basis(model, 0), basis(model, 1)];
  const end = (i) => { // where a token ends, from the centre of all
    const at = ((model.S - 1) * model.T + Math.min(i, model.T - 1)) * model.directions;
    return Array.from(model.x.subarray(at, at + model.directions));
  };
  const [a, b] = state.pair.map(end), first = unit(a) ?? basis(model, 0);
  const others = [unit(b) ?? first, basis(model, 0), basis(model, 1)]; // one of them is not along the first
  return [first, others.map((v) => unit(without(v, first))).find((v) => v !== null) ?? first.map(() => 0)];
}

function projected({directions: K, T, S}, values, axes) {
  return Float32Array.from({length: 2 * S * T}, (_, n) => {
    let sum = 0;
    for (let k = 0; k < K; k++) sum += values[(n >> 1) * K + k] * axes[n & 1][k];
    return sum;
  });
}

// Where everything is on the picture; it stays while only the place between stages changes.
function layout(model, stage) {
  const own = state.axes === "own", key = `${state.axes} ${state.pair} ${own ? stage : ""}`;
  if (model.layout?.key === key) return model.layout;
  const axes = axesOf(model, stage), points = projected(model, model.x, axes);
  const arrows = model.y && projected(model, model.y, axes);
  const shown = own ? points.slice(2 * stage * model.T, 2 * (stage + 1) * model.T) : points; // what fills the frame
  const [left, right, low, high] = extent(shown);
  const scale = Math.min((WIDTH - 2 * MARGIN) / (right - left || 1), (HEIGHT - 2 * MARGIN) / (high - low || 1));
  const onto = (value, n) => n & 1 ? HEIGHT / 2 - (value - (low + high) / 2) * scale
    : WIDTH / 2 + (value - (left + right) / 2) * scale;
  const far = (arrows ?? []).reduce((most, u, n) => n & 1 ? most : Math.max(most, Math.hypot(u, arrows[n + 1])), 0);
  return model.layout = {key, points: points.map(onto), arrows, arrow: far > 0 ? ARROW / far : 0};
}

function extent(points) {
  const ends = [Infinity, -Infinity, Infinity, -Infinity];
  points.forEach((value, n) => {
    const axis = 2 * (n & 1);
    ends[axis] = Math.min(ends[axis], value);
    ends[axis + 1] = Math.max(ends[axis + 1], value);
  });
  return ends;
}

// --- the picture

function buildSpace(model) {
  const path = (name) => make("path", {class: name}), group = (name) => make("g", {class: name});
  model.parts = {
    trails: path("trails"), lines: group("lines"), momenta: path("momenta"), way: path("way"),
    wayMlp: path("way mlp"), points: group("points"), names: group("names"),
  };
  model.circles = model.tokens.map(() => make("circle", {r: model.T > 150 ? 2.4 : 3.4}));
  model.labels = model.tokens.map((word) => make("text", {}, word));
  model.parts.points.append(...model.circles);
  model.parts.names.append(...model.labels);
  const frame = {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: model.family};
  model.svg = make("svg", frame, ...Object.values(model.parts));
  model.card.querySelector(".space").append(model.svg);
  for (const kind of ["pointermove", "pointerdown"]) model.svg.addEventListener(kind, (event) => point(model, event));
}

function point(model, event) {
  const box = model.svg.getBoundingClientRect(), scale = WIDTH / box.width;
  const u = (event.clientX - box.left) * scale, v = (event.clientY - box.top) * scale;
  let best = -1, nearest = REACH;
  for (let i = 0; i < model.T; i++) {
    const away = Math.hypot(model.now[2 * i] - u, model.now[2 * i + 1] - v);
    if (away < nearest) [best, nearest] = [i, away];
  }
  if (best >= 0 && best !== model.text.chosen) choose(model.text, best);
}

function draw(model) {
  const at = depth(model), base = Math.floor(at), part = at - base, {T} = model;
  const {points, arrows, arrow} = layout(model, Math.round(at));
  const between = (values) => values && Float32Array.from({length: 2 * T}, (_, i) => {
    const a = values[2 * base * T + i];
    return part ? a + part * (values[2 * (base + 1) * T + i] - a) : a;
  });
  model.now = between(points);
  drawWays(model, points, base, part);
  drawMomenta(model, between(arrows), arrow);
  drawTokens(model, drawLines(model, Math.round(at)));
}

const spot = (points, n) => `${points[2 * n].toFixed(1)} ${points[2 * n + 1].toFixed(1)}`;

function drawWays(model, points, base, part) {
  const {T, now, text: {chosen}} = model;
  let [faint, solid, dashed] = ["", "", ""];
  for (let i = 0; $("trails").checked && i < T; i++) {
    faint += `M${spot(points, i)}`;
    for (let s = 1; s <= base; s++) faint += `L${spot(points, s * T + i)}`;
    if (part) faint += `L${spot(now, i)}`;
  }
  for (let s = 1; s < model.S; s++) {
    const piece = `M${spot(points, (s - 1) * T + chosen)}L${spot(points, s * T + chosen)}`;
    if (model.halves[s] === "mlp") dashed += piece;
    else solid += piece;
  }
  for (const [name, d] of [["trails", faint], ["way", solid], ["wayMlp", dashed]]) set(model.parts[name], {d});
}

function drawMomenta({T, now, parts}, moving, scale) {
  let drawn = "";
  for (let i = 0; $("momenta").checked && moving && i < T; i++) {
    const u = moving[2 * i] * scale, v = -moving[2 * i + 1] * scale, size = Math.hypot(u, v);
    if (size < 0.7) continue;
    const head = Math.min(4, size / 2) / size, tip = [now[2 * i] + u, now[2 * i + 1] + v];
    const wing = (turn) => spot([tip[0] - head * (u - turn * v), tip[1] - head * (v + turn * u)], 0);
    drawn += `M${spot(now, i)}L${spot(tip, 0)}M${wing(0.6)}L${spot(tip, 0)}L${wing(-0.6)}`;
  }
  set(parts.momenta, {d: drawn});
}

function drawLines(model, stage) { // the row of the layer that has just pulled; at the start, of the first
  const {now, text: {chosen}} = model, named = new Set([chosen]);
  const row = model.attention?.[Math.max(1, model.layers[stage]) - 1]?.[chosen] ?? [], drawn = [];
  for (let n = 0; $("lines").checked && n < row.length; n += 2) {
    const j = row[n], weight = Math.abs(row[n + 1]) / 1000;
    named.add(j);
    const ends = {x1: now[2 * chosen], y1: now[2 * chosen + 1], x2: now[2 * j], y2: now[2 * j + 1]};
    const look = {"stroke-width": 0.6 + 6 * weight, "stroke-opacity": Math.min(0.85, 0.2 + weight)};
    drawn.push(make("line", {...ends, ...look, ...(row[n + 1] < 0 ? {"stroke-dasharray": "4 3"} : {})}));
  }
  model.parts.lines.replaceChildren(...drawn);
  return named;
}

function drawTokens({T, now, circles, labels, text: {chosen}}, named) {
  for (let i = 0; i < T; i++) {
    const [u, v] = [now[2 * i], now[2 * i + 1]], end = u > WIDTH - 70;
    set(circles[i], {cx: u.toFixed(1), cy: v.toFixed(1)});
    for (const node of [circles[i], labels[i]]) node.classList.toggle("chosen", i === chosen);
    labels[i].style.display = $("names").checked || named.has(i) ? "" : "none";
    const x = (u + (end ? -6 : 6)).toFixed(1), y = (v - 5).toFixed(1);
    set(labels[i], {x, y, "text-anchor": end ? "end" : "start"});
  }
}
