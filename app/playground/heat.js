// Heat maps on a canvas that can be explored by pointer and by arrow keys.

import { characters, find, make, number } from "./page.js";

const MOST_LETTERS = 40;

// Draw rows x columns of colours, with names if there are any, and let cells be chosen.
export class HeatMap {
  constructor(canvas, chosen) {
    this.canvas = canvas;
    this.chosen = chosen;
    this.at = null;
    canvas.addEventListener("pointermove", (event) => this.point(event));
    canvas.addEventListener("pointerdown", (event) => this.point(event));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // `map` has rows, columns, value(i, j), colour(value). It may have names of rows and columns, a
  // margin for them, the widest that a cell may be, and its height if that is not its width.
  show(map, label) {
    this.map = map;
    this.image = pixels(map);
    this.at = null;
    this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  draw() {
    const { map, canvas } = this;
    const room = canvas.parentElement.clientWidth;
    if (!map || !room) return;
    const margin = map.names ? Math.min(map.margin ?? 92, room / 3) : 0;
    const width = Math.min((room - margin) / map.columns, map.widest ?? 34);
    const height = map.height ?? width;
    this.box = { margin, width, height };
    const ratio = devicePixelRatio || 1;
    const size = [margin + width * map.columns, margin + height * map.rows];
    canvas.width = Math.round(size[0] * ratio);
    canvas.height = Math.round(size[1] * ratio);
    canvas.style.width = `${size[0]}px`;
    canvas.style.height = `${size[1]}px`;
    const context = canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.imageSmoothingEnabled = false;
    context.drawImage(this.image, margin, margin, width * map.columns, height * map.rows);
    if (map.names && Math.min(width, height) >= 9) this.name(context);
    if (this.at) this.mark(context);
  }

  name(context) {
    const { map, box } = this;
    const style = getComputedStyle(this.canvas);
    context.fillStyle = style.color;
    context.font = `${Math.min(13, box.width - 1)}px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    map.names.rows.forEach((name, i) => {
      context.fillText(fitted(context, name, box.margin - 6), box.margin - 6, box.margin + (i + 0.5) * box.height);
    });
    context.textAlign = "left";
    map.names.columns.forEach((name, j) => {
      context.save();
      context.translate(box.margin + (j + 0.5) * box.width, box.margin - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(fitted(context, name, box.margin - 6), 0, 0);
      context.restore();
    });
  }

  mark(context) {
    const { width, height, margin } = this.box;
    const [i, j] = this.at;
    const place = [margin + j * width, margin + i * height, Math.max(width, 4), Math.max(height, 4)];
    context.lineWidth = 3;
    context.strokeStyle = "#000";
    context.strokeRect(...place);
    context.lineWidth = 1.5;
    context.strokeStyle = "#fff";
    context.strokeRect(...place);
  }

  point(event) {
    if (!this.map || !this.box) return;
    const { margin, width, height } = this.box;
    const i = Math.floor((event.offsetY - margin) / height);
    const j = Math.floor((event.offsetX - margin) / width);
    if (i >= 0 && j >= 0 && i < this.map.rows && j < this.map.columns) this.choose(i, j);
  }

  key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step || !this.map) return;
    event.preventDefault();
    const [i, j] = this.at ? [this.at[0] + step[0], this.at[1] + step[1]] : [0, 0];
    const within = (place, count) => Math.min(Math.max(place, 0), count - 1);
    this.choose(within(i, this.map.rows), within(j, this.map.columns));
  }

  choose(i, j) {
    if (this.at && this.at[0] === i && this.at[1] === j) return;
    this.at = [i, j];
    this.draw();
    this.chosen(i, j);
  }
}

// As much of a name as there is room for; of a very long one, not all of it is looked at.
function fitted(context, name, room) {
  const letters = characters(name.slice(0, 2 * MOST_LETTERS)).slice(0, MOST_LETTERS);
  if (letters.join("") === name && context.measureText(name).width <= room) return name;
  while (letters.length && context.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

// One pixel for each cell, to be drawn larger.
function pixels({ rows, columns, value, colour }) {
  const canvas = new OffscreenCanvas(columns, rows);
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let i = 0; i < rows; i += 1) {
    for (let j = 0; j < columns; j += 1) {
      image.data.set(colour(value(i, j)), 4 * (i * columns + j));
    }
  }
  context.putImageData(image, 0, 0);
  return canvas;
}

// What the colours of a map from `low` to `high` mean.
export function legend(place, colour, low, high) {
  const bar = make("canvas", { width: 96, height: 1 });
  const context = bar.getContext("2d");
  for (let x = 0; x < 96; x += 1) {
    context.fillStyle = `rgb(${colour(low + ((high - low) * x) / 95).slice(0, 3).join(" ")})`;
    context.fillRect(x, 0, 1, 1);
  }
  bar.setAttribute("aria-hidden", "true");
  place.replaceChildren(number(low, 2), bar, number(high, 2));
}

export const range = (values) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
};

export const toldOf = (canvas) => find(".told", canvas.parentElement);
