/** The difference of two texts, line by line, by their longest common subsequence. */

export interface Line {
  mark: " " | "+" | "-";
  text: string;
}

const CELLS_MAX = 4_000_000;

export function difference(old: string[], now: string[]): Line[] {
  if (old.length * now.length > CELLS_MAX) return [...old.map((text): Line => ({ mark: "-", text })), ...now.map((text): Line => ({ mark: "+", text }))];
  const width = now.length + 1;
  const common = new Uint32Array((old.length + 1) * width);
  const at = (row: number, column: number) => common[row * width + column] ?? 0;
  for (let row = old.length - 1; row >= 0; row--)
    for (let column = now.length - 1; column >= 0; column--)
      common[row * width + column] = old[row] === now[column] ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
  const lines: Line[] = [];
  let row = 0;
  let column = 0;
  while (row < old.length || column < now.length) {
    if (row < old.length && column < now.length && old[row] === now[column]) {
      lines.push({ mark: " ", text: old[row++] as string });
      column++;
    } else if (row < old.length && (column >= now.length || at(row + 1, column) >= at(row, column + 1))) lines.push({ mark: "-", text: old[row++] as string });
    else lines.push({ mark: "+", text: now[column++] as string });
  }
  return lines;
}
