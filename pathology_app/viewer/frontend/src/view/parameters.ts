// Parameters of a link that shows what is on the screen now; bookmarks keep them.
import { imageOf, imageText } from "../image/state";
import type { Viewer } from "../viewer";
import { AT, IMAGE, LAYERS, OVERLAY, viewOf, viewText } from "./link_state";

export function parametersOf({ navigation, layers, image }: Viewer): string {
  const parameters = new URLSearchParams({ [AT]: viewText(navigation.view()) });
  for (const [name, value] of [[OVERLAY, layers.first ? layers.firstText() : ""], [LAYERS, layers.othersText()], [IMAGE, imageText(image.state)]] as const) {
    if (value) {
      parameters.set(name, value);
    }
  }
  return parameters.toString();
}

/** Show what `parametersOf` returned. */
export function showParameters({ navigation, layers, layerPanel, image }: Viewer, text: string): void {
  const parameters = new URLSearchParams(text);
  const view = viewOf(parameters.get(AT));
  if (view) {
    navigation.show(view);
  }
  layers.restore(parameters.get(OVERLAY), parameters.get(LAYERS));
  layerPanel.update();
  image.restore(imageOf(parameters.get(IMAGE)));
}
