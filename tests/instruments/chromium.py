"""A page in a real browser: Chromium without a window, driven by its own protocol over a pipe."""
import base64
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import time

PATH = shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')
_LONGEST = 120  # seconds that an answer may take, on a machine that does other things as well


class Page:
    """One tab. `console` has what the page said there, warnings, errors and uncaught exceptions included."""

    def __init__(self, to_browser, from_browser):
        self._to, self._from = to_browser, from_browser
        self._waiting, self._number, self._session = b'', 0, None
        self._events, self.console = [], []
        target = self._send('Target.createTarget', url='about:blank')['targetId']
        self._session = self._send('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log'):
            self._send(f'{domain}.enable')

    def _send(self, method, **parameters):
        self._number += 1
        message = {'id': self._number, 'method': method, 'params': parameters}
        if self._session is not None:
            message['sessionId'] = self._session
        os.write(self._to, json.dumps(message).encode() + b'\0')
        while True:
            answer = self._receive()
            if answer.get('id') == self._number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']

    def _receive(self):
        end = time.monotonic() + _LONGEST
        while b'\0' not in self._waiting:
            if not select.select([self._from], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError('the browser does not answer')
            part = os.read(self._from, 1 << 16)
            if not part:
                raise RuntimeError('the browser has ended')
            self._waiting += part
        text, self._waiting = self._waiting.split(b'\0', 1)
        message = json.loads(text)
        self._note(message.get('method'), message.get('params', {}))
        return message

    def _note(self, method, parameters):
        if method == 'Runtime.consoleAPICalled':
            self.console.append(' '.join(str(value.get('value')) for value in parameters['args']))
        elif method == 'Runtime.exceptionThrown':
            details = parameters['exceptionDetails']
            self.console.append(details.get('exception', {}).get('description') or details['text'])
        elif method == 'Log.entryAdded':
            self.console.append(parameters['entry']['text'])
        elif method:
            self._events.append(method)

    def screen(self, width, height, dense=1, phone=False):
        self._send('Emulation.setDeviceMetricsOverride', width=width, height=height, deviceScaleFactor=dense, mobile=phone)
        self._send('Emulation.setTouchEmulationEnabled', enabled=phone)

    def colours(self, scheme):
        """'light' or 'dark', as the user's system prefers."""
        self._send('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])

    def load(self, path):
        self._events.clear()
        self._send('Page.navigate', url=path.as_uri())
        while 'Page.loadEventFired' not in self._events:
            self._receive()

    def run(self, script):
        """The value of a JavaScript expression; of a promise, what it comes to."""
        found = self._send('Runtime.evaluate', expression=script, awaitPromise=True, returnByValue=True)
        if 'exceptionDetails' in found:
            raise RuntimeError(found['result'].get('description') or found['exceptionDetails']['text'])
        return found['result'].get('value')

    def wheel(self, x, y, delta):
        self._send('Input.dispatchMouseEvent', type='mouseWheel', x=x, y=y, deltaX=0, deltaY=delta)

    def click(self, x, y):
        for kind in ('mousePressed', 'mouseReleased'):
            self._send('Input.dispatchMouseEvent', type=kind, x=x, y=y, button='left', clickCount=1)

    def type(self, text):
        self._send('Input.insertText', text=text)

    def picture(self, path, whole=False):
        """A screenshot, of the window or of the whole page."""
        data = self._send('Page.captureScreenshot', format='png', captureBeyondViewport=whole)['data']
        path.write_bytes(base64.b64decode(data))


@contextlib.contextmanager
def browser(folder):
    """A Page in a browser of its own, whose files lie in the folder."""
    ours_in, to_browser = os.pipe()
    from_browser, ours_out = os.pipe()

    def take_pipes():  # the protocol is spoken on 3 and 4
        kept = os.dup(ours_in), os.dup(ours_out)
        os.dup2(kept[0], 3)
        os.dup2(kept[1], 4)
    process = subprocess.Popen(
        [PATH, '--headless=new', '--no-sandbox', '--disable-gpu', '--no-first-run', '--remote-debugging-pipe',
         f'--user-data-dir={folder}/profile', 'about:blank'], preexec_fn=take_pipes, close_fds=False,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env={**os.environ, 'HOME': str(folder)})
    os.close(ours_in)
    os.close(ours_out)
    try:
        yield Page(to_browser, from_browser)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(to_browser)
        os.close(from_browser)
