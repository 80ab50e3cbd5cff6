/** The pictograms, drawn on a grid of 24 units. */

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6V11h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  topics: "M4 6h16M4 12h16M4 18h10",
  groups: "M9 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM3 20c0-3.5 2.5-6 6-6s6 2.5 6 6M16 5.2a3 3 0 0 1 0 5.6M17.5 14.3c2.2.8 3.5 2.9 3.5 5.7",
  dead: "M12 9v4M12 17h.01M10.3 4 2.7 17.5A2 2 0 0 0 4.4 20.5h15.2a2 2 0 0 0 1.7-3L13.7 4a2 2 0 0 0-3.4 0z",
  schedule: "M12 7v5l3 2M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  transaction: "M4 8h13l-3-3M20 16H7l3 3",
  schema: "M8 4c-2 0-3 1-3 3v2c0 1.500-.8 2.500-2 3 1.200.5 2 1.500 2 3v2c0 2 1 3 3 3M16 4c2 0 3 1 3 3v2c0 1.500.8 2.500 2 3-1.200.5-2 1.500-2 3v2c0 2-1 3-3 3",
  cluster: "M4 4h16v6H4zM4 14h16v6H4zM8 7h.01M8 17h.01",
  access: "M12 3l7 3v5c0 4.500-3 8-7 10-4-2-7-5.500-7-10V6z",
  pipelines: "M4 6h5v5H4zM15 13h5v5h-5zM9 8.500h4.500v7H15",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M4 12H2M22 12h-2M5 5l1.500 1.500M17.500 17.500 19 19M19 5l-1.500 1.500M6.500 17.500 5 19",
  moon: "M20 14.500A8 8 0 0 1 9.500 4a8 8 0 1 0 10.500 10.500z",
  plus: "M12 5v14M5 12h14",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13",
  refresh: "M20 11a8 8 0 1 0-2.300 6.300M20 5v6h-6",
  play: "M7 5l12 7-12 7z",
  stop: "M6 6h12v12H6z",
  pause: "M8 5v14M16 5v14",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  close: "M6 6l12 12M18 6 6 18",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  send: "M4 12l16-8-6 16-3-7z",
  edit: "M4 20h4L19 9l-4-4L4 16zM13 7l4 4",
  warning: "M12 8v5M12 16.500h.01M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18z",
  check: "M5 12.500l4.500 4.500L19 7",
  keyboard: "M3 6h18v12H3zM7 10h.01M11 10h.01M15 10h.01M7 14h10",
  user: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c0-4 3.500-6.500 8-6.500s8 2.500 8 6.500",
  filter: "M4 5h16l-6 8v6l-4-2v-4z",
  left: "M14 6l-6 6 6 6",
  right: "M10 6l6 6-6 6",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
