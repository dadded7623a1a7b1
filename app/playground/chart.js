// Charts in SVG: axes, lines, dots and a marker. A table beside each chart is its text alternative.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 400;
const HEIGHT = 280;
const MARGIN = { left: 52, right: 14, top: 10, bottom: 44 };
const TICKS = 5; // about as many per axis

// `x` and `y` are axes: { low, high, label, format(value) }.
export class Chart {
  constructor(svg, x, y, description) {
    this.svg = svg;
    this.x = x;
    this.y = y;
    svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
    svg.setAttribute("role", "img");
    svg.setAttribute("aria-label", description);
    svg.replaceChildren();
    this.drawAxes();
  }

  left(value) {
    return MARGIN.left + share(value, this.x) * (WIDTH - MARGIN.left - MARGIN.right);
  }

  top(value) {
    return HEIGHT - MARGIN.bottom - share(value, this.y) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  }

  drawAxes() {
    const [bottom, right] = [HEIGHT - MARGIN.bottom, WIDTH - MARGIN.right];
    for (const value of ticks(this.x)) {
      this.add("line", { class: "grid", x1: this.left(value), x2: this.left(value), y1: MARGIN.top, y2: bottom });
      this.text(this.x.format(value), this.left(value), bottom + 16, "middle");
    }
    for (const value of ticks(this.y)) {
      this.add("line", { class: "grid", x1: MARGIN.left, x2: right, y1: this.top(value), y2: this.top(value) });
      this.text(this.y.format(value), MARGIN.left - 6, this.top(value) + 4, "end");
    }
    this.text(this.x.label, (MARGIN.left + right) / 2, HEIGHT - 8, "middle");
    const middle = (MARGIN.top + bottom) / 2;
    this.text(this.y.label, 12, middle, "middle").setAttribute("transform", `rotate(-90 12 ${middle})`);
  }

  // `points` are [x, y] pairs.
  line(points, name) {
    const path = points.map(([x, y]) => `${this.left(x).toFixed(1)},${this.top(y).toFixed(1)}`).join(" ");
    return this.add("polyline", { class: name, points: path });
  }

  dots(points, name) {
    for (const [x, y] of points) this.add("circle", { class: name, cx: this.left(x), cy: this.top(y), r: 4 });
  }

  // Draw or move a vertical line.
  mark(value) {
    this.marker ??= this.add("line", { class: "marker", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom });
    for (const end of ["x1", "x2"]) this.marker.setAttribute(end, this.left(value));
  }

  text(content, x, y, anchor) {
    const element = this.add("text", { x, y, "text-anchor": anchor });
    element.textContent = content;
    return element;
  }

  add(tag, attributes) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    this.svg.append(element);
    return element;
  }
}

const share = (value, { low, high }) => (high > low ? (value - low) / (high - low) : 0.5);

// Multiples of 1, 2 or 5 times a power of ten within an axis.
function ticks({ low, high }) {
  if (!(high > low)) return [low];
  const rough = (high - low) / TICKS;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i += 1) values.push(i * step);
  return values;
}
