/** Rows that a person has chosen, for as long as the list shows the same topic with the same filters. */

import { useState } from "preact/hooks";

export interface Choice<Row> {
  rows: Row[];
  has: (row: Row) => boolean;
  toggle: (row: Row) => void;
  clear: () => void;
}

/** The rows of another `scope`, such as another topic, are no longer chosen: nobody sees them. */
export function useChoice<Row extends { id: string }>(scope: unknown): Choice<Row> {
  const name = JSON.stringify(scope);
  const [held, setHeld] = useState({ name, rows: new Map<string, Row>() });
  const rows = held.name === name ? held.rows : new Map<string, Row>();
  return {
    rows: [...rows.values()],
    has: (row) => rows.has(row.id),
    toggle: (row) => {
      const next = new Map(rows);
      if (!next.delete(row.id)) next.set(row.id, row);
      setHeld({ name, rows: next });
    },
    clear: () => setHeld({ name, rows: new Map() }),
  };
}
