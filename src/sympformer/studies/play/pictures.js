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

  let ink = {};
  const colours = () => {
    const style = getComputedStyle(document.documentElement);
    ink = Object.fromEntries(["paper", "line", "faint", "ink-2", "softmax", "gpt", "linear"].map((name) =>
      [name, style.getPropertyValue(`--${name}`).trim()]));
  };
  /** As many points of memory as the screen has. */
  const fit = (pen) => {
    const { clientWidth: width, clientHeight: height } = pen.canvas, dense = devicePixelRatio || 1;
    Object.assign(pen.canvas, { width: Math.round(width * dense), height: Math.round(height * dense) });
    Object.assign(pen, { w: width, h: height, dense });
  };
  const clear = (pen) => {
    pen.setTransform(pen.dense, 0, 0, pen.dense, 0, 0);
    pen.clearRect(0, 0, pen.w, pen.h);
    pen.font = "12px system-ui, sans-serif";
    pen.lineWidth = 1;
  };

  const colour = (which) => (which === 0 ? ink.softmax : ink.gpt);
  /** Pixels of a position, and back. */
  const placed = (pen, reach, u, v) => [pen.w / 2 * (1 + u / reach), pen.h / 2 * (1 - v / reach)];
  const unplaced = (pen, reach, left, top) => [(2 * left / pen.w - 1) * reach, (1 - 2 * top / pen.h) * reach];

  /** Dots with tails; which: 0 with momentum, 1 of first order; one: the chosen particle, which gets a ring. */
  const particles = (pen, which, now, states, one, reach) => {
    clear(pen);
    pen.strokeStyle = ink.line;
    pen.beginPath();
    pen.moveTo(0, pen.h / 2);
    pen.lineTo(pen.w, pen.h / 2);
    pen.moveTo(pen.w / 2, 0);
    pen.lineTo(pen.w / 2, pen.h);
    pen.stroke();
    pen.fillStyle = ink["ink-2"];
    pen.textAlign = "right";
    pen.fillText(short(reach), pen.w - 4, pen.h / 2 - 5);
    const trail = states.slice(-TRAIL);
    pen.strokeStyle = pen.fillStyle = colour(which);
    pen.globalAlpha = 0.3;
    pen.beginPath();
    const left = pen.w / 2, top = pen.h / 2, unit = left / reach; // `placed`, written out: thousands of points a frame
    for (let k = 0; k < now.length; k += 2) {
      pen.moveTo(left + unit * trail[0][0][k], top - unit * trail[0][0][k + 1]);
      for (const [x] of trail) pen.lineTo(left + unit * x[k], top - unit * x[k + 1]);
    }
    pen.stroke();
    pen.globalAlpha = 1;
    pen.beginPath();
    for (let k = 0; k < now.length; k += 2) {
      const u = left + unit * now[k], v = top - unit * now[k + 1];
      pen.moveTo(u + 3.5, v);
      pen.arc(u, v, 3.5, 0, 2 * Math.PI);
    }
    pen.fill();
    pen.strokeStyle = ink["ink-2"];
    pen.lineWidth = 1.5;
    pen.beginPath();
    pen.arc(...placed(pen, reach, now[2 * one], now[2 * one + 1]), 8, 0, 2 * Math.PI);
    pen.stroke();
  };

  /** Lines in a frame with numbers at its ends. lines: {points, colour, dash, label}. */
  const chart = (pen, lines, [x0, x1], [y0, y1], names) => {
    clear(pen);
    const left = 58, right = 14, top = 20, bottom = 34;
    const wide = pen.w - left - right, high = pen.h - top - bottom;
    const at = (x, y) => [left + (x - x0) / (x1 - x0) * wide, pen.h - bottom - (y - y0) / (y1 - y0) * high];
    pen.strokeStyle = ink.faint;
    pen.beginPath();
    pen.moveTo(left, top);
    pen.lineTo(left, pen.h - bottom);
    pen.lineTo(pen.w - right, pen.h - bottom);
    pen.stroke();
    pen.fillStyle = ink["ink-2"];
    pen.textAlign = "right";
    pen.fillText(names.high, left - 6, top + 8);
    pen.fillText(names.low, left - 6, pen.h - bottom);
    pen.fillText(names.end, pen.w - right, pen.h - bottom + 15);
    pen.textAlign = "left";
    pen.fillText(names.begin, left, pen.h - bottom + 15);
    pen.fillText(names.y, 4, 11);
    pen.textAlign = "center";
    pen.fillText(names.x, (left + pen.w - right) / 2, pen.h - 6);
    pen.save();
    pen.beginPath();
    pen.rect(left, top - 2, wide, high + 4);
    pen.clip();
    for (const { points, colour, dash } of lines) {
      pen.strokeStyle = colour;
      pen.lineWidth = 1.8;
      pen.setLineDash(dash ?? []);
      pen.beginPath();
      points.forEach(([x, y], k) => pen[k ? "lineTo" : "moveTo"](...at(x, y)));
      pen.stroke();
      if (points.length) {
        pen.fillStyle = colour;
        pen.beginPath();
        pen.arc(...at(...points.at(-1)), 3, 0, 2 * Math.PI);
        pen.fill();
      }
    }
    pen.restore();
    pen.textAlign = "right";
    lines.forEach(({ label, colour }, k) => {
      pen.fillStyle = colour;
      pen.fillText(label, pen.w - right, top + 8 + 15 * k);
    });
  };
  const extent = (values, margin = 0.05) => {
    let low = Infinity, high = -Infinity;
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    const room = margin * (high - low) || Math.abs(high) * 0.05 || 1;
    return [low - room, high + room];
  };

  /** By powers of ten: how far it is above its lower end, and where it has none, how far below zero. */
  const energies = (pen, records, bound) => {
    const open = bound === null;
    const height = (energy) => (open ? -Math.log10(-energy) : Math.log10(Math.max(energy - bound, 1e-12)));
    const name = (value) => short(open ? -(10 ** -value) : 10 ** value, 3);
    const lines = records.map(({ energy }, i) => ({
      points: energy.map(([calls, value]) => [calls, height(value)]),
      colour: colour(i), dash: i === 0 ? [] : [5, 3], label: i === 0 ? "— momentum" : "- - first order",
    }));
    const points = lines.flatMap((line) => line.points);
    const across = [points[0][0], Math.max(points[0][0] + 20, ...lines.map((line) => line.points.at(-1)[0]))];
    const up = extent(points.map((point) => point[1]));
    chart(pen, lines, across, up, {
      low: name(up[0]), high: name(up[1]), begin: short(across[0]), end: short(across[1]),
      x: "kernel evaluations", y: open ? "energy, by powers of ten" : "energy above its least, by powers of ten",
    });
  };

  /** (x, y) of one particle, a curve for each coordinate. */
  const phases = (pen, states, one) => {
    const k = 2 * one;
    const lines = [0, 1].map((axis) => ({
      points: states.map(([x, y]) => [x[k + axis], y[k + axis]]),
      colour: axis === 0 ? ink.softmax : ink.linear, dash: axis === 0 ? [] : [5, 3],
      label: axis === 0 ? "— first coordinate" : "- - second coordinate",
    }));
    const points = lines.flatMap((line) => line.points);
    const across = extent(points.map((point) => point[0])), up = extent(points.map((point) => point[1]));
    chart(pen, lines, across, up, {
      low: short(up[0], 3), high: short(up[1], 3), begin: short(across[0], 3), end: short(across[1], 3),
      x: "position", y: "momentum",
    });
  };

  return { short, colours, fit, placed, unplaced, particles, energies, phases };
})();
