/** Sign-in with a user and password, or an API key; kept until the tab is closed. */

import { useState } from "preact/hooks";
import { basic, credentials, get, sessionEnded, signIn } from "../api/client";
import type { Whoami } from "../api/types";
import { Button, ErrorNote, Note } from "../parts/basics";
import { SelectField, TextField } from "../parts/fields";
import { t } from "../texts";

export function SignIn({ onDone }: { onDone: () => void }) {
  const [kind, setKind] = useState("password");
  const [user, setUser] = useState("");
  const [secret, setSecret] = useState("");
  const [error, setError] = useState<Error>();
  const submit = async (event: Event) => {
    event.preventDefault();
    const header = kind === "password" ? basic(user, secret) : `Bearer ${secret}`;
    credentials.value = header;
    try {
      await get<Whoami>("/v1/whoami");
      signIn(header);
      onDone();
    } catch (problem) {
      credentials.value = "";
      setError(problem as Error);
    }
  };
  return (
    <main class="sign-in">
      <form class="panel" onSubmit={(event) => void submit(event)}>
        <h1>{t.signIn.title}</h1>
        <p class="muted">{location.host}</p>
        <SelectField label={t.signIn.with} value={kind} onChange={setKind} choices={[["password", t.signIn.password], ["key", t.signIn.key]]} />
        {kind === "password" && <TextField label={t.signIn.user} value={user} onChange={setUser} isRequired />}
        <TextField label={kind === "password" ? t.signIn.secret : t.signIn.key} type="password" value={secret} onChange={setSecret} isRequired />
        {sessionEnded.value && !error && <Note kind="warn">{t.signIn.ended}</Note>}
        {error && <ErrorNote error={error} />}
        <Button type="submit" kind="primary">{t.signIn.action}</Button>
      </form>
    </main>
  );
}
