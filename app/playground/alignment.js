// Word alignment: two sentences with words tinted by contribution and lines between aligned words.

import { characters, find, format, formatSigned, make } from "./common.js";

const SVG = "http://www.w3.org/2000/svg";
const SIDES = ["a", "b"];

export class WordAlignment {
  constructor(element, details) {
    this.element = element;
    this.details = details;
    new ResizeObserver(() => this.drawLines()).observe(element);
  }

  show(texts, explanation) {
    this.explanation = explanation;
    const sentences = SIDES.map((side) => explanation[side]);
    const sizes = sentences.flatMap(({ words }) => words.map((word) => Math.abs(word.contribution)));
    const largest = Math.max(...sizes, Number.MIN_VALUE);
    this.buttons = sentences.map(({ words }, side) => words.map((word, i) => this.button(word, side, i, largest)));
    const lines = document.createElementNS(SVG, "svg");
    lines.setAttribute("aria-hidden", "true");
    const [first, second] = sentences.map((sentence, side) =>
      sentenceElement(texts[side], sentence, this.buttons[side], explanation.truncated[side],
        side ? "Second sentence" : "First sentence"));
    this.element.replaceChildren(first, lines, second);
    this.details.textContent = "";
    this.drawLines();
  }

  button(word, side, i, largest) {
    const button = make("button", { type: "button", className: "word", textContent: word.text });
    button.classList.toggle("negative", word.contribution < 0);
    button.style.setProperty("--amount", (Math.abs(word.contribution) / largest).toFixed(3));
    for (const event of ["focus", "pointerenter", "click"]) button.addEventListener(event, () => this.select(side, i));
    return button;
  }

  select(side, i) {
    const { explanation } = this;
    const [own, other] = side ? ["b", "a"] : ["a", "b"];
    const word = explanation[own].words[i];
    const tokens = word.tokens.map((token) => explanation[own].tokens[token].token);
    const link = explanation.alignment.links.find((candidate) => candidate[own] === i);
    let text = `“${word.text}”`;
    if (tokens.length > 1) text += ` (${tokens.join(" ")})`;
    text += `: contribution ${formatSigned(word.contribution)}`;
    if (link) text += `, aligned with “${explanation[other].words[link[other]].text}”, similarity ${format(link.similarity)}`;
    this.details.textContent = text;
    this.highlight(link);
  }

  highlight(selected) {
    this.explanation.alignment.links.forEach((link, index) => {
      this.paths?.[index]?.classList.toggle("selected", link === selected);
    });
    this.buttons.forEach((buttons, side) => {
      buttons.forEach((button, i) => button.classList.toggle("selected", selected?.[SIDES[side]] === i));
    });
  }

  drawLines() {
    const lines = find("svg", this.element);
    if (!lines || !lines.clientWidth) return;
    const frame = lines.getBoundingClientRect();
    lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    const { links } = this.explanation.alignment;
    const similarities = links.map((link) => link.similarity);
    const [low, high] = [Math.min(...similarities), Math.max(...similarities)];
    this.paths = links.map((link) => {
      const from = this.buttons[0][link.a].getBoundingClientRect();
      const to = this.buttons[1][link.b].getBoundingClientRect();
      const strength = high > low ? (link.similarity - low) / (high - low) : 1;
      const path = document.createElementNS(SVG, "path");
      path.setAttribute("d", curve(from, to, frame));
      path.style.strokeWidth = 1 + 3 * strength;
      path.style.strokeOpacity = 0.3 + 0.6 * strength;
      return path;
    });
    lines.replaceChildren(...this.paths);
  }
}

function curve(from, to, frame) {
  const x = [from, to].map((box) => box.left + box.width / 2 - frame.left);
  const y = [from.bottom - frame.top, to.top - frame.top];
  const middle = (y[0] + y[1]) / 2;
  return `M${x[0]} ${y[0]} C${x[0]} ${middle} ${x[1]} ${middle} ${x[1]} ${y[1]}`;
}

// The text as typed: words as buttons, the characters between them, and the truncated rest.
function sentenceElement(text, sentence, buttons, truncated, label) {
  const all = characters(text);
  const line = make("p", { className: "sentence" });
  line.setAttribute("aria-label", `${label}, word by word`);
  line.setAttribute("role", "group");
  line.addEventListener("keydown", (event) => moveFocus(event, buttons));
  buttons.forEach((button, i) => (button.tabIndex = i ? -1 : 0)); // one tab stop; arrow keys move on
  let end = 0;
  sentence.words.forEach((word, i) => {
    line.append(all.slice(end, word.start).join(""), buttons[i]);
    end = word.end;
  });
  const rest = all.slice(end).join("");
  line.append(truncated ? make("span", { className: "truncated", textContent: rest }) : rest);
  return line;
}

function moveFocus(event, buttons) {
  const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const next = step && buttons[buttons.indexOf(event.target) + step];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
