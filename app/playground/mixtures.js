// The mixtures of two sentences as heat maps, and the typical words of a class.

import { getLatent } from "./api.js";
import { diverging, sequential } from "./colours.js";
import { find, format, formatSigned, make } from "./common.js";
import { HeatMap, range, showLegend } from "./heatmap.js";
import { LazyTable } from "./tables.js";

const NAMES = ["First sentence", "Second sentence", "Difference (first − second)"];
const MIN_SHARE = 0.1; // of a class in the table
const DELAY = 100; // milliseconds that the pointer rests on a cell before its words are fetched

export class Mixtures {
  constructor(element, details, table) {
    this.element = element;
    this.details = details;
    this.table = new LazyTable(table);
    this.words = new Map(); // by index of the class in a mixture
    this.maps = NAMES.map((name) => this.addMap(name));
  }

  addMap(name) {
    const canvas = make("canvas", { tabIndex: 0 });
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-details", this.table.details.id);
    const legend = make("div", { className: "legend" });
    this.element.append(make("figure", {}, make("figcaption", {}, name), canvas, legend));
    return { name, legend, map: new HeatMap(canvas, (index, dim) => this.describe(dim, index)) };
  }

  // Show mixtures of another model from now on.
  use({ latent_dims: dims, classes }) {
    Object.assign(this, { dims, classes });
    this.words.clear();
  }

  show([a, b]) {
    const { dims: columns, classes: rows } = this;
    this.mixtures = [a, b];
    const difference = a.map((value, k) => value - b[k]);
    const largest = range([...a, ...b])[1];
    const [low, high] = range(difference);
    const limit = Math.max(-low, high);
    const shares = sequential(0, largest);
    const scales = [[shares, 0, largest], [shares, 0, largest], [diverging(limit), -limit, limit]];
    [a, b, difference].forEach((values, which) => {
      const { name, legend, map } = this.maps[which];
      const [colour, from, to] = scales[which];
      const value = (i, j) => values[j * rows + i];
      map.show({ rows, columns, value, colour, height: 6, maxWidth: 12 },
        `${name}: ${columns} latent dims of ${rows} classes; use the arrow keys to explore.`);
      showLegend(legend, colour, from, to);
    });
    this.selected = null;
    this.details.textContent = "";
    this.table.show(() => [["dim", "class", "first", "second", "difference"], this.rows(),
      `Classes with a share of at least ${MIN_SHARE} in either sentence`]);
  }

  rows() {
    const [a, b] = this.mixtures;
    const rows = [];
    for (let k = 0; k < a.length; k += 1) {
      if (Math.max(a[k], b[k]) < MIN_SHARE) continue;
      const [dim, index] = [Math.floor(k / this.classes), k % this.classes];
      rows.push([String(dim), String(index), format(a[k]), format(b[k]), formatSigned(a[k] - b[k])]);
    }
    return rows;
  }

  async describe(dim, index) {
    const position = dim * this.classes + index;
    const shares = this.mixtures.map((mixture) => format(mixture[position]));
    const text = `Dim ${dim}, class ${index}: first ${shares[0]}, second ${shares[1]}`;
    this.selected = position;
    this.details.textContent = text;
    if (!this.words.has(position)) await new Promise((resolve) => setTimeout(resolve, DELAY));
    if (this.selected !== position) return;
    const words = await this.fetchWords(dim, index, position);
    if (this.selected === position && words) this.details.textContent = `${text}: ${words}`;
  }

  // Typical words of a class; empty if the model has none.
  async fetchWords(dim, index, position) {
    if (!this.words.has(position)) {
      try {
        const { words } = await getLatent(dim, index);
        this.words.set(position, words.map((word) => word.word).join(", "));
      } catch (error) {
        if (error.status === 404) this.words.set(position, ""); // else fetched again next time
      }
    }
    return this.words.get(position);
  }
}
