// The browser's storages. Each is null if it is forbidden.

/** Kept for good. */
export function storeOfBrowser(): Storage | null {
  return allowed(() => window.localStorage);
}

/** Kept as long as the tab. */
export function storeOfTab(): Storage | null {
  return allowed(() => window.sessionStorage);
}

function allowed(store: () => Storage): Storage | null {
  try {
    return store();
  } catch {
    return null;
  }
}
