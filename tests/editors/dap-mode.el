;;; -*- lexical-binding: t -*-
;; Drives Emacs with dap-mode through a session, as a user would: the provider and its template are the guide's.
;; In the environment: PROGRAM, LINE (of the breakpoint), CONFIGURATION (those lines, a file), REPORT (a file).

(package-initialize)
(require 'dap-mode)
(require 'dap-ui)

(defun drive-tell (&rest words)
  (write-region (concat (mapconcat (lambda (word) (format "%s" word)) words " ") "\n") nil (getenv "REPORT") 'append))

(defun drive-wait (what condition)
  "Let Emacs work until CONDITION returns something, and return that."
  (let ((until (+ (float-time) (string-to-number (getenv "SECONDS")))) value)
    (while (not (setq value (funcall condition)))
      (when (> (float-time) until) (error "Waited for %s" what))
      (accept-process-output nil 0.02))
    value))

(defun drive-frame ()
  "The frame of a stop, nil while the program runs."
  (let ((session (dap--cur-session)))
    (and session (dap--session-running session) (dap--debug-session-active-frame session))))

(defun drive-ask (command &rest arguments)
  "Have dap-mode send a request, and return the body of the response."
  (let (body)
    (dap--send-message (dap--make-request command arguments)
                       (lambda (response) (setq body (gethash "body" response)))
                       (dap--cur-session))
    (drive-wait command (lambda () body))))

(defun drive-variable (name)
  "A variable of the first scope."
  (let* ((scope (elt (gethash "scopes" (drive-ask "scopes" :frameId (gethash "id" (drive-frame)))) 0))
         (reference (gethash "variablesReference" scope)))
    (gethash "value" (seq-find (lambda (one) (equal (gethash "name" one) name))
                               (gethash "variables" (drive-ask "variables" :variablesReference reference))))))

(defun drive ()
  (dap-mode 1)
  (dap-ui-mode 1)
  (load (getenv "CONFIGURATION") nil t)
  (find-file (getenv "PROGRAM"))
  (goto-char (point-min))
  (forward-line (1- (string-to-number (getenv "LINE"))))
  (dap-breakpoint-toggle)
  (dap-debug (copy-tree (cdr (assoc "torch.compile: current file" dap-debug-template-configurations))))
  (let* ((frame (drive-wait "a stop" #'drive-frame))
         (line (gethash "line" frame)))
    (drive-tell "stopped" line (gethash "name" frame) (drive-variable "y"))
    (dap-next (dap--cur-session))
    (drive-wait "a step" (lambda () (let ((now (drive-frame))) (and now (/= line (gethash "line" now))))))
    (drive-tell "stepped" (gethash "line" (drive-frame))))
  (dap-continue (dap--cur-session) (dap--debug-session-thread-id (dap--cur-session)))
  (drive-wait "the end" (lambda () (not (and (dap--cur-session) (dap--session-running (dap--cur-session))))))
  (drive-tell "ended"))

(condition-case problem
    (drive)
  (error (drive-tell "problem" problem)
         (drive-tell (with-current-buffer "*Messages*" (buffer-string)))))
(kill-emacs)
