#!/bin/bash
# As the real image's entry point does, without quotes: a value with a space falls apart here, too.
# shellcheck disable=SC2068
exec text-generation-launcher $@
