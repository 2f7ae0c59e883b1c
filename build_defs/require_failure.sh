#!/usr/bin/env bash
# require_failure.sh BINARY CASE: passes only if this case of the GoogleTest
# fails by an expectation or a finding of a sanitizer, and not by a crash or a
# sanitizer that cannot run.
set -u
unset XML_OUTPUT_FILE # the failure must not be reported as a test result
output=$("$1" --gtest_filter="*.$2" 2>&1)
status=$?
echo "$output"
if [[ $status -eq 0 ]]; then
  echo "$2 passes although its guard is broken."
  exit 1
fi
[[ $output == *"[  FAILED  ] "*".$2"* ]] ||
  grep -Eq "(Address|Thread)Sanitizer: (data race|heap-use-after-free)" <<<"$output"
