// A page for checking a screen: what should be visible, and what to do if it is not. Works without a server.
import { box } from "../panel/elements";
import type { Streamlit } from "../types";
import css from "./style.css";
import { fillButtons, gammaStripes, patchRow, rule } from "./drawings";
import { factRows, screenFacts, whenResized } from "./screen";
import { GREY_STEPS, HALF_LIGHT, NEAR_BLACK, NEAR_WHITE, stains } from "./values";

interface Section {
  title: string;
  content: HTMLElement[];
  seen: string;
  otherwise: string;
}

function sections(): Section[] {
  return [
    {
      title: "Black and white",
      content: [
        patchRow("Near black", NEAR_BLACK, "near", "#000000"),
        patchRow("Near white", NEAR_WHITE, "near", "#ffffff"),
      ],
      seen: "At least four of the five squares on black and on white; the fourth differs from its background by 5 %. On a good screen, all five.",
      otherwise: "Near black: dim the room, or raise the monitor's brightness (black level). Near white: lower its contrast. Let the monitor warm up for half an hour.",
    },
    {
      title: "Grey steps",
      content: [patchRow("Grey steps", GREY_STEPS, "steps")],
      seen: "Eighteen steps, each darker or lighter than its neighbour, and none with a tint.",
      otherwise: "Tint: set the monitor's white point to 6500 K or sRGB, and switch off night light and reading modes. Steps that merge: see Black and white.",
    },
    {
      title: "Gamma and sharpness",
      content: [gammaStripes(HALF_LIGHT)],
      seen: "From two metres away, or with half-closed eyes, the square for 2.2 blends into the stripes; the others stay lighter or darker. Close up, the stripes are even, without bands.",
      otherwise: "If another square blends in: set the monitor's gamma to 2.2 or its mode to sRGB. Bands: set the browser's zoom to 100 %, and the display to its native resolution.",
    },
    {
      title: "Stain colours",
      content: stains().map(({ name, patches }) => box("stain", box("name", name), patchRow(name, patches, "stains"))),
      seen: "Five steps of each stain. The weakest DAB is brown, not grey or yellow; the strongest haematoxylin is blue, not black.",
      otherwise: "Select the monitor's sRGB mode, or its measured profile in the operating system. With a colorimeter, measure the patches against the sRGB values below them.",
    },
    {
      title: "Uniformity",
      content: [fillButtons()],
      seen: "The same grey from edge to edge, without spots, clouds or tinted corners, even when you move your head.",
      otherwise: "Clean the screen and view it straight on. Remaining defects are the screen's own: do not judge weak staining in those places.",
    },
    {
      title: "Size",
      content: [rule()],
      seen: "A bank card held against the screen covers the box exactly, and the ruler is 100 mm long.",
      otherwise: "Move the Fit slider until it does. Lengths and areas in the viewer are those on the glass; the size of the screen does not affect them.",
    },
  ];
}

function drawn({ title, content, seen, otherwise }: Section): HTMLElement {
  const [section, heading] = [document.createElement("section"), document.createElement("h2")];
  heading.textContent = title;
  section.append(heading, paragraph("You should see", seen), ...content, paragraph("If not", otherwise));
  return section;
}

function paragraph(head: string, text: string): HTMLParagraphElement {
  const [line, strong] = [document.createElement("p"), document.createElement("strong")];
  strong.textContent = `${head}: `;
  line.append(strong, text);
  return line;
}

function screenSection(): HTMLElement {
  const [section, heading, table] = [document.createElement("section"), document.createElement("h2"), document.createElement("table")];
  heading.textContent = "This screen";
  table.setAttribute("aria-label", heading.textContent);
  const fill = (): void => {
    table.replaceChildren(...factRows(screenFacts()).map(factRow));
  };
  fill();
  whenResized(section, fill);
  section.append(heading, table);
  return section;
}

function factRow([name, value, advice]: [string, string, string]): HTMLTableRowElement {
  const [row, head] = [document.createElement("tr"), document.createElement("th")];
  [head.scope, head.textContent] = ["row", name];
  row.append(head);
  row.insertCell().textContent = value;
  row.insertCell().textContent = advice || "good";
  row.classList.toggle("amiss", advice !== "");
  return row;
}

const drawnIn = new WeakSet<Streamlit<unknown>["parentElement"]>();

export function calibration({ parentElement }: Streamlit<unknown>): void {
  if (drawnIn.has(parentElement)) {
    return;
  }
  drawnIn.add(parentElement);
  const style = document.createElement("style");
  style.textContent = css;
  parentElement.append(style, box("calibration", screenSection(), ...sections().map(drawn)));
}
