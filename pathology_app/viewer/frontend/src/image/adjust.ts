// Colours, brightness, contrast and gamma of the slide image: a section of the panel, and keys. Adjusted in the browser only;
// a note over the slide shows every adjustment for as long as it applies.
import type { Tone } from "./colour";
import { box, button, type Slider, slider } from "../panel/elements";
import { changesOf, type ImageState, RANGES, STANDARD_IMAGE } from "./state";

const NAMES: Readonly<Record<keyof Tone, string>> = { brightness: "Brightness", contrast: "Contrast", gamma: "Gamma" };
const STEP = 0.01;
/** Link to app_pages/calibration.py. */
const CALIBRATION = "?check=screen";

export class ImageAdjust {
  readonly element = box("image-adjust");
  readonly state: ImageState;
  private readonly sliders: [keyof Tone, Slider][];
  private readonly choices: HTMLInputElement[] = [];

  constructor(
    state: ImageState | null,
    private readonly hasProfile: boolean,
    private readonly changed: (state: ImageState) => void,
  ) {
    this.state = { ...(state ?? STANDARD_IMAGE) };
    this.sliders = (Object.keys(NAMES) as (keyof Tone)[]).map((key) => [key, this.toneSlider(key)]);
    this.element.append(
      ...(hasProfile ? [this.colourChoice()] : []),
      ...this.sliders.map(([, { element }]) => element),
      box("flags", button("Reset", "Reset the image (Shift + i)", () => this.reset()), calibrationLink()),
    );
    this.show();
  }

  /** Text that lists the adjustments; "" if there are none. */
  get changes(): string {
    return changesOf(this.state, this.hasProfile);
  }

  toggleColours(): void {
    if (this.hasProfile) {
      this.change({ isScanned: !this.state.isScanned });
    }
  }

  reset(): void {
    this.change(STANDARD_IMAGE);
  }

  /** Apply a saved state; null is the standard one. */
  restore(state: ImageState | null): void {
    this.change(state ?? STANDARD_IMAGE);
  }

  focus(): void {
    (this.choices.find(({ checked }) => checked) ?? this.sliders[0]![1].input).focus();
  }

  private change(to: Partial<ImageState>): void {
    Object.assign(this.state, to);
    this.show();
    this.changed(this.state);
  }

  private show(): void {
    this.sliders.forEach(([key, control]) => control.show(this.state[key]));
    this.choices.forEach((choice) => (choice.checked = (choice.value === "scanned") === this.state.isScanned));
  }

  private toneSlider(key: keyof Tone): Slider {
    const control = slider(NAMES[key], NAMES[key], (value) => this.change({ [key]: value }));
    const [min, max] = RANGES[key];
    Object.assign(control.input, { min: String(min), max: String(max), step: String(STEP) });
    return control;
  }

  private colourChoice(): HTMLFieldSetElement {
    const [field, legend] = [document.createElement("fieldset"), document.createElement("legend")];
    legend.textContent = "Colours";
    field.append(legend, this.choice("corrected", "corrected with the scanner's profile"), this.choice("scanned", "as scanned"));
    return field;
  }

  private choice(value: string, text: string): HTMLLabelElement {
    const [input, label] = [document.createElement("input"), document.createElement("label")];
    Object.assign(input, { type: "radio", name: "gemslide-colours", value });
    input.addEventListener("change", () => this.change({ isScanned: value === "scanned" }));
    this.choices.push(input);
    label.className = "check";
    label.append(input, text);
    return label;
  }
}

/** Opens in a new tab, so that the slide stays as it is. */
function calibrationLink(): HTMLAnchorElement {
  const link = document.createElement("a");
  Object.assign(link, { href: CALIBRATION, target: "_blank", rel: "noopener", textContent: "Check this screen" });
  return link;
}
