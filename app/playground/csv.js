// CSV (RFC 4180) and TSV, read as the `lattemix` command reads them.

import { UserError } from "./errors.js";

// Yield the rows of a table as { line, fields }; `line` is where the row starts. Skips empty lines.
// In CSV, fields may be quoted, with quotes doubled; in TSV, quotes are text.
export function* parseTable(text, separator) {
  const quoting = separator === ",";
  let [position, line] = [0, 1];
  while (position < text.length) {
    const start = line;
    const fields = [];
    let more = true;
    while (more) {
      let field;
      if (quoting && text[position] === '"') {
        let end;
        [field, end] = quotedField(text, position, start);
        line += countLines(field);
        position = end;
        if (position < text.length && !isEnd(text[position], separator)) {
          throw new UserError(`Line ${line.toLocaleString("en")}: text follows a closing quote.`);
        }
      } else {
        const end = endOfField(text, position, separator);
        field = text.slice(position, end);
        position = end;
      }
      fields.push(field);
      more = text[position] === separator;
      if (more) position += 1;
    }
    if (text.startsWith("\r\n", position)) position += 2;
    else if (position < text.length) position += 1;
    line += 1;
    if (fields.length > 1 || fields[0] !== "") yield { line: start, fields };
  }
}

const isEnd = (character, separator) => character === separator || character === "\n" || character === "\r";

function endOfField(text, position, separator) {
  while (position < text.length && !isEnd(text[position], separator)) position += 1;
  return position;
}

// The field and the position after its closing quote.
function quotedField(text, start, line) {
  let from = start + 1;
  let field = "";
  for (;;) {
    const quote = text.indexOf('"', from);
    if (quote < 0) throw new UserError(`Line ${line.toLocaleString("en")}: a quote is not closed.`);
    field += text.slice(from, quote);
    if (text[quote + 1] !== '"') return [field, quote + 1];
    field += '"';
    from = quote + 2;
  }
}

const countLines = (field) => field.split(/\r\n|\r|\n/).length - 1;
