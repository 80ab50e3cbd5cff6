/** What a dialog will act on: the chosen rows by name, also those of other pages of the list. */

import { Marked } from "../parts/text";
import { t } from "../texts";

const SHOWN_MAX = 20;

export function Chosen({ names }: { names: string[] }) {
  return (
    <ul class="chosen-rows" aria-label={t.chosen.title}>
      {names.slice(0, SHOWN_MAX).map((name) => <li key={name}><Marked text={name} /></li>)}
      {names.length > SHOWN_MAX && <li class="muted">{t.chosen.more(names.length - SHOWN_MAX)}</li>}
    </ul>
  );
}
