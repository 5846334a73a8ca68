"""Clinical studies: a frozen protocol, a ledger of every slide and stage, workers that pull, a log as proof."""
