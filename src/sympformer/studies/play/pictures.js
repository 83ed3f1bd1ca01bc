"use strict";
// What the playground draws, on canvases: particles with their tails, lines in a frame.
const Pictures = (() => {
  const TRAIL = 24; // states in a tail

  /** A few digits, powers of ten where that is shorter, a true minus. */
  const short = (value, digits = 4) => {
    if (!Number.isFinite(value)) return "–";
    const size = Math.abs(value), far = size >= 1e5 || (size > 0 && size < 1e-3);
    return (far ? value.toExponential(digits - 2) : `${+value.toPrecision(digits)}`).replace("-", "−");
  };

  const ink = {};
  /** The style sheet's colours as they are now, light or dark. */
  const colours = () => {
    const probe = document.body.appendChild(document.createElement("i"));
    for (const name of ["line", "faint", "ink-2", "softmax", "gpt", "linear"]) {
      probe.style.color = `var(--${name})`;
      ink[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  };
  /** As many points of memory as the screen has. */
  const fit = (pen) => {
    const { clientWidth: w, clientHeight: h } = pen.canvas, dense = devicePixelRatio || 1;
    Object.assign(pen.canvas, { width: Math.round(w * dense), height: Math.round(h * dense) });
    Object.assign(pen, { w, h, dense });
  };
  const clear = (pen) => {
    pen.setTransform(pen.dense, 0, 0, pen.dense, 0, 0);
    pen.clearRect(0, 0, pen.w, pen.h);
    pen.font = "12px system-ui, sans-serif";
    pen.setLineDash([]);
  };
  const path = (pen, colour, width, points, dash = []) => {
    Object.assign(pen, { strokeStyle: colour, lineWidth: width });
    pen.setLineDash(dash);
    pen.beginPath();
    points.forEach(([x, y], k) => pen[k ? "lineTo" : "moveTo"](x, y));
    pen.stroke();
  };
  const dots = (pen, colour, radius, points) => {
    pen.fillStyle = colour;
    pen.beginPath();
    for (const [u, v] of points) {
      pen.moveTo(u + radius, v);
      pen.arc(u, v, radius, 0, 2 * Math.PI);
    }
    pen.fill();
  };
  const word = (pen, text, x, y, textAlign, fillStyle = ink["ink-2"]) => {
    Object.assign(pen, { textAlign, fillStyle });
    pen.fillText(text, x, y);
  };

  /** Pixels of a position, and back. */
  const placed = (pen, reach, u, v) => [pen.w / 2 * (1 + u / reach), pen.h / 2 * (1 - v / reach)];
  const unplaced = (pen, reach, left, top) => [(2 * left / pen.w - 1) * reach, (1 - 2 * top / pen.h) * reach];

  /** Dots with tails; which: 0 with momentum, 1 of first order; one: the chosen particle, which gets a ring. */
  const particles = (pen, which, now, states, one, reach) => {
    clear(pen);
    path(pen, ink.line, 1, [[0, pen.h / 2], [pen.w, pen.h / 2]]);
    path(pen, ink.line, 1, [[pen.w / 2, 0], [pen.w / 2, pen.h]]);
    word(pen, short(reach), pen.w - 4, pen.h / 2 - 5, "right");
    const colour = which === 0 ? ink.softmax : ink.gpt, trail = states.slice(-TRAIL);
    const every = Array.from({ length: now.length / 2 }, (_, i) => 2 * i);
    const at = (x, k) => placed(pen, reach, x[k], x[k + 1]);
    pen.globalAlpha = 0.3;
    for (const k of every) path(pen, colour, 1, [...trail.map(([x]) => at(x, k)), at(now, k)]);
    pen.globalAlpha = 1;
    dots(pen, colour, 3.5, every.map((k) => at(now, k)));
    pen.beginPath();
    Object.assign(pen, { strokeStyle: ink["ink-2"], lineWidth: 1.5 });
    pen.arc(...at(now, 2 * one), 8, 0, 2 * Math.PI);
    pen.stroke();
  };

  /** Lines in a frame with numbers at its ends. lines: {points, colour, label}, the second one dashed. */
  const chart = (pen, lines, [x0, x1], [y0, y1], name, words) => {
    clear(pen);
    const left = 58, right = pen.w - 14, top = 20, bottom = pen.h - 34;
    const at = ([x, y]) => [left + (x - x0) / (x1 - x0) * (right - left), bottom - (y - y0) / (y1 - y0) * (bottom - top)];
    path(pen, ink.faint, 1, [[left, top], [left, bottom], [right, bottom]]);
    word(pen, name(y1), left - 6, top + 8, "right");
    word(pen, name(y0), left - 6, bottom, "right");
    word(pen, short(x0, 3), left, bottom + 15, "left");
    word(pen, short(x1, 3), right, bottom + 15, "right");
    word(pen, words.y, 4, 11, "left");
    word(pen, words.x, (left + right) / 2, pen.h - 6, "center");
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 2, right - left, bottom - top + 4);
    pen.clip();
    lines.forEach(({ points, colour }, k) => {
      path(pen, colour, 1.8, points.map(at), k ? [5, 3] : []);
      dots(pen, colour, 3, points.slice(-1).map(at));
    });
    pen.restore();
    lines.forEach(({ label, colour }, k) => word(pen, label, right, top + 8 + 15 * k, "right", colour));
  };
  const extent = (lines, i) => {
    let low = Infinity, high = -Infinity;
    for (const value of lines.flatMap(({ points }) => points.map((point) => point[i])).filter(Number.isFinite)) {
      [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    const room = 0.05 * (high - low) || Math.abs(high) * 0.05 || 1;
    return [low - room, high + room];
  };

  /** By powers of ten: how far it is above its lower end, and where it has none, how far below zero. */
  const energies = (pen, records, bound) => {
    const open = bound === null;
    const height = (energy) => (open ? -Math.log10(-energy) : Math.log10(Math.max(energy - bound, 1e-12)));
    const lines = records.map(({ energy }, i) => ({
      points: energy.map(([calls, value]) => [calls, height(value)]),
      colour: i === 0 ? ink.softmax : ink.gpt, label: i === 0 ? "— momentum" : "- - first order",
    }));
    const begin = lines[0].points[0][0], end = Math.max(begin + 20, ...lines.map((line) => line.points.at(-1)[0]));
    chart(pen, lines, [begin, end], extent(lines, 1), (value) => short(open ? -(10 ** -value) : 10 ** value, 3), {
      x: "kernel evaluations", y: open ? "energy, by powers of ten" : "energy above its least, by powers of ten",
    });
  };

  /** (x, y) of one particle, a curve for each coordinate. */
  const phases = (pen, states, one) => {
    const lines = [0, 1].map((axis) => ({
      points: states.map(([x, y]) => [x[2 * one + axis], y[2 * one + axis]]),
      colour: axis === 0 ? ink.softmax : ink.linear, label: axis === 0 ? "— first coordinate" : "- - second coordinate",
    }));
    chart(pen, lines, extent(lines, 0), extent(lines, 1), (value) => short(value, 3), { x: "position", y: "momentum" });
  };

  return { short, colours, fit, placed, unplaced, particles, energies, phases };
})();
