// Transcripts as files: written by the server, saved by the browser.

/** Fetch the transcript of a session as txt, srt, vtt or json; raises an Error that says what is wrong. */
export async function transcript(session, format, headers) {
  const answer = await fetch(`/v1/sessions/${encodeURIComponent(session)}/transcript.${format}`, { headers });
  if (answer.ok) return answer;
  throw Object.assign(new Error((await answer.text()).trim()), { status: answer.status });
}

/** Give a file to the person. */
export async function save(answer, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(await answer.blob());
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
