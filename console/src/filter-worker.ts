/** Runs a person's JavaScript filter, where it can compute and reach nothing. */

interface Request {
  id: number;
  code: string;
  messages: unknown[];
}

type Filter = (message: unknown) => unknown;

const scope = self as unknown as { onmessage: (event: MessageEvent<Request>) => void; postMessage: (data: unknown) => void };

function compiled(code: string): Filter {
  try {
    return new Function("message", `"use strict"; return (${code}\n);`) as Filter;
  } catch {
    return new Function("message", `"use strict"; ${code}`) as Filter;
  }
}

scope.onmessage = ({ data }) => {
  const { id, code, messages } = data;
  try {
    const filter = compiled(code);
    let error = "";
    const passed = messages.map((message) => {
      try {
        return Boolean(filter(message));
      } catch (problem) {
        error ||= String(problem);
        return false;
      }
    });
    scope.postMessage({ id, passed, error });
  } catch (problem) {
    scope.postMessage({ id, passed: messages.map(() => false), error: String(problem) });
  }
};
