/** Compatibility and mode of a subject, or of the whole registry. */

import { useState } from "preact/hooks";
import { call, get, part } from "../api/client";
import { Badge, Button, ErrorNote, Panel, Shown } from "../parts/basics";
import { SelectField } from "../parts/fields";
import { notify } from "../parts/toasts";
import { useLoad } from "../state/load";
import { t } from "../texts";

const LEVELS = ["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"];
const MODES = ["READWRITE", "READONLY", "IMPORT"];

interface RulesProps {
  /** Without one, of the whole registry. */
  subject?: string;
  mayChange: boolean;
}

export function SchemaRules({ subject, mayChange }: RulesProps) {
  return (
    <Panel title={subject === undefined ? t.schemas.whole : t.schemas.tabs["config"]}>
      <Rule kind="config" field="compatibility" answered="compatibilityLevel" title={t.schemas.level} hint={t.schemas.levelHint} choices={LEVELS} subject={subject} mayChange={mayChange} />
      <Rule kind="mode" field="mode" answered="mode" title={t.schemas.mode} hint={t.schemas.modeHint} choices={MODES} subject={subject} mayChange={mayChange} />
    </Panel>
  );
}

interface RuleProps extends RulesProps {
  kind: "config" | "mode";
  field: string;
  answered: string;
  title: string;
  hint: string;
  choices: string[];
}

function Rule({ kind, field, answered, title, hint, choices, subject, mayChange }: RuleProps) {
  const path = subject === undefined ? `/registry/${kind}` : `/registry/${kind}/${part(subject)}`;
  const loaded = useLoad((signal) => get<Record<string, string>>(path, subject === undefined ? {} : { defaultToGlobal: true }, signal), [path]);
  const [error, setError] = useState<Error>();
  const done = () => {
    setError(undefined);
    notify(t.settings.saved);
    loaded.reload();
  };
  const change = (value: string) => call("PUT", path, { body: { [field]: value } }).then(done, setError);
  const reset = () => call("DELETE", path).then(done, setError);
  return (
    <>
      {error && <ErrorNote error={error} />}
      <Shown of={loaded} lines={2}>
        {(found) => {
          const now = found[answered] ?? "";
          if (!mayChange) return <p>{title} <Badge text={now} /></p>;
          return (
            <div class="row">
              <SelectField label={title} value={now} choices={choices.includes(now) ? choices : [now, ...choices]} onChange={(value) => void change(value)} hint={hint} />
              {subject !== undefined && <Button kind="quiet" title={t.schemas.inheritHint} onClick={() => void reset()}>{t.schemas.inherit(title)}</Button>}
            </div>
          );
        }}
      </Shown>
    </>
  );
}
