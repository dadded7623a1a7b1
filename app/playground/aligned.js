// Two sentences, one above the other, with their words tinted and lines between those that meet.

import { characters, find, make, number, signed } from "./page.js";

const SVG = "http://www.w3.org/2000/svg";

export class Aligned {
  constructor(place, told) {
    this.place = place;
    this.told = told;
    new ResizeObserver(() => this.join()).observe(place);
  }

  show(texts, explained) {
    this.explained = explained;
    const sides = [explained.a, explained.b];
    const amounts = sides.flatMap((side) => side.words.map((word) => Math.abs(word.contribution)));
    const most = Math.max(...amounts, Number.MIN_VALUE);
    this.words = sides.map((side, which) => side.words.map((word, i) => this.word(word, which, i, most)));
    const lines = document.createElementNS(SVG, "svg");
    lines.setAttribute("aria-hidden", "true");
    const rows = sides.map((side, which) => sentence(texts[which], side, this.words[which], which));
    this.place.replaceChildren(rows[0], lines, rows[1]);
    this.told.textContent = "";
    this.join();
  }

  word(word, which, i, most) {
    const button = make("button", { type: "button", className: "word", textContent: word.text });
    button.classList.toggle("less", word.contribution < 0);
    button.style.setProperty("--amount", (Math.abs(word.contribution) / most).toFixed(3));
    button.addEventListener("focus", () => this.tell(which, i));
    button.addEventListener("pointerenter", () => this.tell(which, i));
    button.addEventListener("click", () => this.tell(which, i));
    return button;
  }

  tell(which, i) {
    const { explained } = this;
    const side = which ? "b" : "a";
    const word = explained[side].words[i];
    const [link] = explained.alignment.links.filter((found) => found[side] === i);
    const others = explained[which ? "a" : "b"].words;
    const other = link && others[which ? link.a : link.b];
    const pieces = word.tokens.map((token) => explained[side].tokens[token].token);
    const spelled = pieces.length > 1 ? ` (${pieces.join(" ")})` : "";
    const met = other ? `; it meets “${other.text}”, similarity ${number(link.similarity)}` : "";
    this.told.textContent = `“${word.text}”${spelled} adds ${signed(word.contribution)}${met}.`;
    this.mark(link);
  }

  mark(chosen) {
    this.explained.alignment.links.forEach((link, place) => {
      this.paths?.[place]?.classList.toggle("chosen", link === chosen);
    });
    this.words.forEach((words, which) => {
      words.forEach((word, i) => word.classList.toggle("chosen", chosen?.[which ? "b" : "a"] === i));
    });
  }

  // Draw the lines where the words are now.
  join() {
    const lines = find("svg", this.place);
    if (!lines || !lines.clientWidth) return;
    const frame = lines.getBoundingClientRect();
    lines.setAttribute("viewBox", `0 0 ${frame.width} ${frame.height}`);
    const { links } = this.explained.alignment;
    const found = links.map((link) => link.similarity);
    const [low, high] = [Math.min(...found), Math.max(...found)];
    this.paths = links.map((link) => {
      const from = this.words[0][link.a].getBoundingClientRect();
      const to = this.words[1][link.b].getBoundingClientRect();
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

// The text as it was typed: its words as buttons, what is between them, and what was not read.
function sentence(text, side, words, which) {
  const found = characters(text);
  const line = make("p", { className: "sentence" });
  line.setAttribute("aria-label", which ? "Second sentence, word by word" : "First sentence, word by word");
  line.setAttribute("role", "group");
  line.addEventListener("keydown", (event) => step(event, words));
  words.forEach((word, i) => (word.tabIndex = i ? -1 : 0)); // one stop for Tab, and arrows from there
  let end = 0;
  side.words.forEach((word, i) => {
    line.append(found.slice(end, word.start).join(""), words[i]);
    end = word.end;
  });
  const rest = found.slice(end).join("");
  line.append(side.truncated ? make("span", { className: "unread", textContent: rest }) : rest);
  return line;
}

function step(event, words) {
  const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  const next = by && words[words.indexOf(event.target) + by];
  if (!next) return;
  event.preventDefault();
  event.target.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}
