/** Tables as CSV, which spreadsheets show and do not run. */

export function table(rows: unknown[][]): string {
  return rows.map((row) => row.map(cell).join(",")).join("\r\n");
}

const FORMULA = /^[=+\-@\t\r\n\uff0b\uff0d\uff1d\uff20]/;
const NUMBER = /^-?\d+(\.\d+)?([eE][+-]?\d+)?$/;

/** Spreadsheets run cells that begin like a formula; a quote in front makes them text. */
export function cell(value: unknown): string {
  const text = String(value);
  const safe = FORMULA.test(text) && !NUMBER.test(text) ? `'${text}` : text;
  return `"${safe.replaceAll('"', '""')}"`;
}
