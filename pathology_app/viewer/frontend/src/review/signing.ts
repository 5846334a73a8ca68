// Tells the clocks of the page that a signature is under way: the time to take it back is no reading time.

const SIGNING = "gemslide:signing";

export function announceSigning(isOn: boolean): void {
  document.dispatchEvent(new CustomEvent(SIGNING, { detail: isOn }));
}

export function onSigning(listener: (isOn: boolean) => void, signal: AbortSignal): void {
  document.addEventListener(SIGNING, (event) => listener((event as CustomEvent<unknown>).detail === true), { signal });
}
