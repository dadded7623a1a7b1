// Heat maps on a canvas, explored by pointer and arrow keys.

import { characters, find, format, make } from "./common.js";

const MAX_LABEL = 40; // characters
const MAX_WIDTH = 40; // of a cell, in pixels
const MIN_TEXT_WIDTH = 30; // of a cell that shows its value

export class HeatMap {
  // `onSelect(i, j)` is called when a cell is selected.
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.onSelect = onSelect;
    this.selected = null;
    canvas.addEventListener("pointermove", (event) => this.selectAt(event));
    canvas.addEventListener("pointerdown", (event) => this.selectAt(event));
    canvas.addEventListener("keydown", (event) => this.move(event));
    new ResizeObserver(() => this.draw()).observe(canvas.parentElement);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  // `map` has rows, columns, value(i, j) and colour(value). Optional: labels { rows, columns }, the
  // margin for them, maxWidth of a cell, the height of a cell (default: its width), and text(value).
  show(map, description) {
    this.map = map;
    this.image = paint(map);
    this.selected = null;
    this.canvas.setAttribute("aria-label", description);
    this.draw();
  }

  draw() {
    const { map, canvas } = this;
    const available = canvas.parentElement.clientWidth;
    if (!map || !available) return;
    const margin = map.labels ? Math.min(map.margin ?? 92, available / 3) : 0;
    const width = Math.min((available - margin) / map.columns, map.maxWidth ?? MAX_WIDTH);
    const height = map.height ?? width;
    this.layout = { margin, width, height };
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
    if (map.labels && Math.min(width, height) >= 9) this.drawLabels(context);
    if (map.text && width >= MIN_TEXT_WIDTH) this.drawValues(context);
    if (this.selected) this.drawSelection(context);
  }

  drawLabels(context) {
    const { margin, width, height } = this.layout;
    const style = getComputedStyle(this.canvas);
    context.fillStyle = style.color;
    context.font = `${Math.min(13, width - 1)}px ${style.fontFamily}`;
    context.textBaseline = "middle";
    context.textAlign = "right";
    this.map.labels.rows.forEach((label, i) => {
      context.fillText(fit(context, label, margin - 6), margin - 6, margin + (i + 0.5) * height);
    });
    context.textAlign = "left";
    this.map.labels.columns.forEach((label, j) => {
      context.save();
      context.translate(margin + (j + 0.5) * width, margin - 6);
      context.rotate(-Math.PI / 2);
      context.fillText(fit(context, label, margin - 6), 0, 0);
      context.restore();
    });
  }

  drawValues(context) {
    const { map, layout: { margin, width, height } } = this;
    context.font = `${Math.min(12, width / 3)}px ${getComputedStyle(this.canvas).fontFamily}`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    for (let i = 0; i < map.rows; i += 1) {
      for (let j = 0; j < map.columns; j += 1) {
        const value = map.value(i, j);
        context.fillStyle = isDark(map.colour(value)) ? "#fff" : "#000";
        context.fillText(map.text(value), margin + (j + 0.5) * width, margin + (i + 0.5) * height);
      }
    }
  }

  drawSelection(context) {
    const { width, height, margin } = this.layout;
    const [i, j] = this.selected;
    const box = [margin + j * width, margin + i * height, Math.max(width, 4), Math.max(height, 4)];
    context.lineWidth = 3;
    context.strokeStyle = "#000";
    context.strokeRect(...box);
    context.lineWidth = 1.5;
    context.strokeStyle = "#fff";
    context.strokeRect(...box);
  }

  selectAt(event) {
    if (!this.map || !this.layout) return;
    const { margin, width, height } = this.layout;
    const i = Math.floor((event.offsetY - margin) / height);
    const j = Math.floor((event.offsetX - margin) / width);
    if (i >= 0 && j >= 0 && i < this.map.rows && j < this.map.columns) this.select(i, j);
  }

  move(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (!step || !this.map) return;
    event.preventDefault();
    const [i, j] = this.selected ? [this.selected[0] + step[0], this.selected[1] + step[1]] : [0, 0];
    const clamp = (index, count) => Math.min(Math.max(index, 0), count - 1);
    this.select(clamp(i, this.map.rows), clamp(j, this.map.columns));
  }

  select(i, j) {
    if (this.selected && this.selected[0] === i && this.selected[1] === j) return;
    this.selected = [i, j];
    this.draw();
    this.onSelect(i, j);
  }

  // The line below the canvas that describes the selected cell.
  get details() {
    return find(".details", this.canvas.parentElement);
  }
}

// Shorten a label to a width in pixels. Measuring is slow, so only the first characters are measured.
function fit(context, label, width) {
  const letters = characters(label.slice(0, 2 * MAX_LABEL)).slice(0, MAX_LABEL);
  if (letters.join("") === label && context.measureText(label).width <= width) return label;
  while (letters.length && context.measureText(`${letters.join("")}…`).width > width) letters.pop();
  return `${letters.join("")}…`;
}

// Paint one pixel per cell, which `draw` scales up.
function paint({ rows, columns, value, colour }) {
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

// Fill an element with a colour bar from `low` to `high`. `markLegend` shows a value on it.
export function showLegend(element, colour, low, high, text = (value) => format(value, 2)) {
  const bar = make("canvas", { width: 96, height: 1 });
  const context = bar.getContext("2d");
  for (let x = 0; x < 96; x += 1) {
    context.fillStyle = `rgb(${colour(low + ((high - low) * x) / 95).slice(0, 3).join(" ")})`;
    context.fillRect(x, 0, 1, 1);
  }
  const scale = make("span", { className: "bar" }, bar);
  scale.setAttribute("aria-hidden", "true");
  element.replaceChildren(text(low), scale, text(high));
}

// Mark the position of a value on the legend, from 0 to 1; hidden beyond it.
export function markLegend(element, share) {
  const bar = find(".bar", element);
  bar.classList.toggle("marked", share >= 0 && share <= 1);
  bar.style.setProperty("--mark", share);
}

// Whether white text has more contrast than black on a colour: its relative luminance, about.
const isDark = ([red, green, blue]) => 0.2126 * red ** 2.2 + 0.7152 * green ** 2.2 + 0.0722 * blue ** 2.2 < 0.18 * 255 ** 2.2;

// Minimum and maximum. Not Math.min(...values), which fails on large arrays.
export const range = (values) => {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  return [low, high];
};
