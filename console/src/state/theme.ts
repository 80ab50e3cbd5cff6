/** Light or dark: what the system says, until a person chooses. */

import { computed, effect, signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";

const THEME = "goqueue.theme";
const systemIsDark = signal(matchMedia("(prefers-color-scheme: dark)").matches);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => (systemIsDark.value = event.matches));

export const theme = signal<Theme>((localStorage.getItem(THEME) as Theme | null) ?? "system");
export const isDark = computed(() => (theme.value === "system" ? systemIsDark.value : theme.value === "dark"));

effect(() => {
  localStorage.setItem(THEME, theme.value);
  document.documentElement.dataset["theme"] = isDark.value ? "dark" : "light";
});

export function switchTheme(): void {
  theme.value = isDark.value ? "light" : "dark";
}
