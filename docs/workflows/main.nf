#!/usr/bin/env nextflow
// The workers of one study under Nextflow: on this machine, or on whatever cluster Nextflow's executors reach.
// Research use only. Not for diagnosis.
//
//     nextflow run docs/workflows/main.nf --project /data/study --study S --workers 4
//
// Nextflow starts workers and nothing more. Which slide is done by whom is the ledger's business: it knows of retries,
// of slides that failed and of workers that died. On several machines use PostgreSQL, and have GEMSLIDE_LEDGER in the
// processes' environment (docs/how_to/operating.md). To let the study go on after `gemslide study retry` or `amend`, run it
// again, without -resume.

params.project = '.'
params.study = null
params.workers = 2
params.out = '.'

// For the shell, whatever the project is called.
def quoted(text) {
    return "'" + text.toString().replace("'", "'\\''") + "'"
}

process begin {
    input:
    tuple val(study), val(project)

    output:
    tuple val(study), val(project)

    script:
    """
    gemslide study begin ${quoted(study)} --project ${quoted(project)}
    """
}

// A worker ends when the study is over, or paused. One that was lost is started again.
process work {
    errorStrategy 'retry'
    maxRetries 3
    memory '4 GB'

    input:
    tuple val(study), val(project), val(number)

    output:
    val number

    script:
    """
    gemslide study work ${quoted(study)} --project ${quoted(project)}
    """
}

process report {
    publishDir params.out, mode: 'copy'

    input:
    tuple val(study), val(project)
    val numbers

    output:
    path 'status.json'
    path 'verified.json'

    script:
    """
    gemslide study status ${quoted(study)} --project ${quoted(project)} --json > status.json
    gemslide study verify ${quoted(study)} --project ${quoted(project)} --json > verified.json
    """
}

workflow {
    if (!params.study) {
        error('Which study? Give --study NAME.')
    }
    study = begin(channel.of([params.study, file(params.project).toAbsolutePath().toString()]))
    numbers = channel.of(1..(params.workers as Integer))
    done = work(study.combine(numbers))
    report(study, done.collect())
}
