trap 'kill -USR1 "$ranks"' USR1
"${launch[@]}" {{command}} &
ranks=$!
while true; do
  wait "$ranks"
  status=$?
  kill -0 "$ranks" 2>/dev/null || break  # a signal had ended the wait; the ranks go on
done
